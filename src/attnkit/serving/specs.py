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


def split_spec(text: str) -> RunSpec:
    """Split a run on the command line into its parts, without reading the run."""
    match = _SPEC.fullmatch(text)
    assert match is not None
    given, path = match["name"], Path(match["path"])
    if given is not None and Path(text).exists():  # a path with an equals sign
        given, path = None, Path(text)
    if given is not None and ":" in given:
        src, tgt = given.split(":")
        return RunSpec(path, f"{src}-{tgt}", (src, tgt))
    return RunSpec(path, given or path.resolve().name, None)


def parse_spec(text: str) -> RunSpec:
    """Parse a run on the command line; languages come from file names if not given.

    Raises ``RunError`` if the run is missing or damaged.
    """
    spec = split_spec(text)
    config = read_run_config(RunFolder(spec.path).checkpoint()[0])
    if spec.languages is not None or config.task != "translation":
        return spec
    return replace(spec, languages=languages_of_files(config.data.src[0], config.data.tgt[0]))


def languages_of_files(src: str, tgt: str) -> tuple[str, str]:
    """Return the languages that the names of two files, or of two fields, end in.

    >>> languages_of_files("train.en.gz", "train.de"), languages_of_files("a.tmx:en", "text.txt")
    (('en', 'de'), ('en', 'tgt'))
    """
    found = zip((src, tgt), UNKNOWN, strict=True)
    of_src, of_tgt = (code if is_language_code(code := language_of(Path(name))) else other for name, other in found)
    return of_src, of_tgt


def choose_languages(config: Any, src: str, tgt: str) -> dict[str, str]:
    """Return the arguments of ``load`` by which a run translates in a direction.

    An imported model of many languages takes names that are its codes; other names, such as ``en:de`` of a model with
    ``eng_Latn``, are those of requests alone, and it translates in its usual direction.
    """
    codes = config.vocabulary.symbols if config.vocabulary.kind == "sentencepiece" else ()
    if any(find_code(codes, language) for language in (src, tgt)):
        return {"src_lang": src, "tgt_lang": tgt}
    return {"tgt_lang": tgt} if config.data.target_languages else {}
