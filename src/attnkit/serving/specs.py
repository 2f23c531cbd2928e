"""Runs as the command line names them: path, name, languages."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.quality.language_names import is_language_code
from attnkit.text.sources import language_of
from attnkit.text.tags import find_code

_SPEC = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+(?::[A-Za-z0-9_-]+)?)=)?(?P<path>.*)", re.DOTALL)
UNKNOWN = ("src", "tgt")  #: names of languages that are not known, source and target


@dataclass(frozen=True)
class RunSpec:
    """A run on the command line: ``RUN``, ``NAME=RUN`` or ``en:de=RUN``."""

    path: Path
    name: str
    languages: tuple[str, str] | None  #: source and target
    has_own_languages: bool = False  #: whether the user wrote the languages


def split_spec(text: str) -> RunSpec:
    """Split a run on the command line into its parts, without reading the run."""
    match = _SPEC.fullmatch(text)
    assert match is not None
    given, path = match["name"], Path(match["path"])
    if given is not None and Path(text).exists():  # a path with an equals sign
        given, path = None, Path(text)
    if given is not None and ":" in given:
        src, tgt = given.split(":")
        return RunSpec(path, f"{src}-{tgt}", (src, tgt), has_own_languages=True)
    return RunSpec(path, given or path.resolve().name, None)


def parse_spec(text: str) -> RunSpec:
    """Parse a run on the command line, and find its languages if they are not given.

    Raises ``RunError`` if the run is missing or damaged.
    """
    spec = split_spec(text)
    return find_languages(spec, read_run_config(RunFolder(spec.path).checkpoint()[0]))


def find_languages(spec: RunSpec, config: Any) -> RunSpec:
    """Return a run with the languages of its configuration, if none were written.

    They are those of the first direction that the run was trained in, or come from file names.
    """
    if spec.has_own_languages or config.task != "translation":
        return spec
    first = config.data.training_pairs[0]
    if first.direction:
        return replace(spec, languages=(first.source_language, first.target_language))
    return replace(spec, languages=languages_of_files(first.src, first.tgt))


def languages_of_files(src: str, tgt: str) -> tuple[str, str]:
    """Return the languages that the names of two files, or of two fields, end in.

    >>> languages_of_files("train.en.gz", "train.de"), languages_of_files("a.tmx:en", "text.txt")
    (('en', 'de'), ('en', 'tgt'))
    """
    found = zip((src, tgt), UNKNOWN, strict=True)
    of_src, of_tgt = (code if is_language_code(code := language_of(Path(name))) else other for name, other in found)
    return of_src, of_tgt


def choose_languages(config: Any, spec: RunSpec) -> dict[str, str]:
    """Return the arguments of ``load`` by which a run translates in its direction.

    An imported model of many languages takes names that the user wrote if they are its codes; other names, such as
    ``en:de`` of a model with ``eng_Latn``, are those of requests alone. A run that was trained in several directions
    needs a choice in any case.
    """
    if spec.languages is None:
        return {}
    src, tgt = spec.languages
    data, codes = config.data, config.vocabulary.language_codes
    if not codes:
        return {"tgt_lang": tgt} if data.target_languages else {}
    is_code = spec.has_own_languages and any(find_code(codes, language) for language in spec.languages)
    has_several = len(data.source_languages) > 1 or len(data.target_languages) > 1
    return {"src_lang": src, "tgt_lang": tgt} if is_code or has_several else {}
