"""A model of many languages is imported without a direction, which each call then names."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

from directions import MODELS, Imported, import_twice, write_lines
from translators import sentences

import attnkit
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.errors import UsageError
from attnkit.serving.limits import Limits
from attnkit.serving.models import Models

Call = Callable[..., tuple[int, str, str]]
TINY = ["--preset", "tiny", "--max-steps", "2", "--device", "cpu", "--set", "data.held_out=5"]
TINY += ["--set", "confidence=false", "--set", "data.max_length=90"]


class Undirected:
    """A model imported for two directions, and for none."""

    def __init__(self, place: Path, name: str) -> None:
        self.both: Imported = import_twice(place, name)
        self.done = import_huggingface(place / "hub", place / "none")
        self.run, (self.src, self.tgt) = self.done.path, map(str, self.both.other)


@pytest.fixture(scope="module", params=MODELS)
def none(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Undirected:
    return Undirected(tmp_path_factory.mktemp("none"), request.param)


def test_commands_translate_and_score_as_the_named_direction(none: Undirected, call: Call, tmp_path: Path) -> None:
    assert any("the run has no usual languages" in warning for warning in none.done.warnings)
    text, options = write_lines(tmp_path / "text", sentences()[:20]), ["--src-lang", none.src, "--tgt-lang", none.tgt]
    for command in (["translate", "RUN", "-i", text], ["score", "RUN", text, text]):
        found, expected = (
            call(*[run if one == "RUN" else one for one in command], *given)
            for run, given in ((none.run, options), (none.both.run_of_other, []))
        )
        assert found[0] == expected[0] == 0 and found[1] == expected[1], found[2]
        for given, option in (([], "--src-lang"), (options[:2], "--tgt-lang"), (options[2:], "--src-lang")):
            code, out, err = call(*[none.run if one == "RUN" else one for one in command], *given)
            assert (code, out) == (2, "") and "this model needs a language" in err and f"at {option}" in err
            assert len(err.strip().split("\n")) <= 3 and "choose one of" in err


def test_an_import_shows_a_command_that_works(none: Undirected, call: Call, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text", sentences()[:3])
    for given, what in (
        ([], "usual languages: name them when it translates (--src-lang, --tgt-lang)"),
        (["--src-lang", none.src], "usual target language: name it when it translates (--tgt-lang)"),
        (["--tgt-lang", none.tgt], "usual source language: name it when it translates (--src-lang)"),
    ):
        run = tmp_path / f"run{len(given)}{what[6]}"
        code, out, err = call("import", "huggingface", none.both.run.parent / "hub", "-o", run, *given)
        assert code == 0 and f"the run has no {what}, and both to train it (--pair)" in err
        _, _, shown = out.partition("try: ")
        words = shlex.split(shown)
        code, out, err = call(*words[words.index("translate") :], "-i", text, "--max-length", "20")
        assert code == 0 and len(out.splitlines()) == 3, err
    code, out, _ = call("import", "huggingface", none.both.run.parent / "hub", "-o", tmp_path / "json", "--json")
    src, tgt = json.loads(out)["command"].split()[2::2]
    assert code == 0 and src != tgt


def test_the_library_takes_them_at_load_or_per_call(none: Undirected) -> None:
    lines, (src, tgt) = sentences()[:20], (none.src, none.tgt)
    expected = attnkit.Translator.load(none.both.run_of_other, device="cpu", threads=1)
    texts = expected.translate_texts(lines)
    plain = attnkit.load(none.run, device="cpu", threads=1)
    assert isinstance(plain, attnkit.Translator) and plain.summary.languages == ()
    assert plain.translate_texts(lines, src_lang=src, tgt_lang=tgt) == texts
    with pytest.raises(UsageError, match="this model needs a language"):
        attnkit.load(none.run, device="cpu", threads=1).translate(lines)
    chosen = attnkit.Translator.load(none.run, device="cpu", threads=1, src_lang=src, tgt_lang=tgt)
    assert chosen.translate_texts(lines) == texts and chosen.summary.languages == (f"{src}:{tgt}",)
    scores = [one.log_prob for one in expected.score(lines, lines[::-1])]
    assert [one.log_prob for one in chosen.score(lines, lines[::-1])] == scores


def test_a_service_needs_a_direction(none: Undirected) -> None:
    options: dict[str, Any] = {"device": "cpu", "precision": "float32", "threads": 1}
    with pytest.raises(UsageError, match="the model has no language 'xx'") as found:
        Models([f"{none.src}:xx={none.run}"], Limits(), **options)
    assert found.value.where == f"{none.src}:xx={none.run}", "serve has no --tgt-lang"
    for spec in (str(none.run), f"xx:yy={none.run}"):
        with pytest.raises(UsageError, match="the run has no usual languages") as caught:
            Models([spec], Limits(), **options)
        assert "name two of its languages: " in str(caught.value.help)
    models = Models([f"{none.src}:{none.tgt}={none.run}"], Limits(), **options)
    given = models.translator(none.src, none.tgt).model.translate_texts(sentences()[:5])
    models.close(1.0)
    expected = attnkit.Translator.load(none.both.run_of_other, device="cpu", threads=1)
    assert given == expected.translate_texts(sentences()[:5])


def test_training_and_exports_need_a_direction(none: Undirected, call: Call, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this run has no usual languages, which an export needs"):
        export_huggingface(none.run, tmp_path / "hub")
    src, tgt = (write_lines(tmp_path / name, sentences()[n : n + 40]) for name, n in (("a", 0), ("b", 40)))
    begin = ["train", "--init-from", none.run, *TINY]
    code, _, err = call(*begin, "--src", src, "--tgt", tgt, "-o", tmp_path / "no")
    assert code == 2 and "the imported model has no usual languages" in err and "--pair" in err
    runs = []
    for base, name in ((none.run, "mine"), (none.both.run, "same")):
        begin[2] = base
        code, _, err = call(*begin, "--pair", f"{none.src}:{none.tgt}", src, tgt, "-o", tmp_path / name)
        assert code == 0, err
        runs.append(attnkit.Translator.load(tmp_path / name, device="cpu", threads=1))
    assert runs[0].translate_texts(sentences()[:9]) == runs[1].translate_texts(sentences()[:9])
    records = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("mine", "same")]
    assert records[0] == records[1] and json.loads(records[0].split("\n")[0])
