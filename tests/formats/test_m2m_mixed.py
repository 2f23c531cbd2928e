"""Jobs with several runs, of which one has languages to choose from; languages that nothing would use."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

from translators import marian_folder, nllb_folder, sentences

import attnkit
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.errors import UsageError
from attnkit.tasks.translation.directions import LanguagePair
from attnkit.tasks.translation.shortlist import LexiconShortlist
from attnkit.tasks.translation.translator import load_translator

USUAL, OTHER = ("eng_Latn", "deu_Latn"), ("zho_Hans", "ace_Arab")
LANGUAGES = {"src_lang": OTHER[0], "tgt_lang": OTHER[1]}
QUICK: dict[str, Any] = {"device": "cpu", "threads": 1, "max_length": 12, "min_length": 4, "quiet": True}
Call = Callable[..., tuple[int, str, str]]


class Runs(NamedTuple):
    """Imported runs, and text."""

    coded: Path  #: NLLB, imported for the usual direction
    of_other: Path  #: the same, imported for the other direction
    plain: Path  #: Marian, of one direction
    src: Path
    tgt: Path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    place = tmp_path_factory.mktemp("mixed")
    nllb_folder(place / "hub", end=3.0)
    marian_folder(place / "marian hub")
    coded = [
        import_huggingface(place / "hub", place / name, src_lang=src, tgt_lang=tgt).path
        for name, (src, tgt) in (("coded", USUAL), ("of other", OTHER))
    ]
    plain = import_huggingface(place / "marian hub", place / "plain").path
    for run in (*coded, plain):
        (run / "metrics.jsonl").touch()  # a report is on runs with records
    for name, lines in (("src", sentences()[:40]), ("tgt", sentences()[40:80])):
        (place / name).write_text("".join(f"{line}\n" for line in lines))
    return Runs(*coded, plain, place / "src", place / "tgt")


def pairs_of(folder: Path) -> list[str]:
    return [(folder / f"pairs.{side}").read_text() for side in ("src", "tgt")]


@pytest.mark.parametrize("order", [1, -1])
def test_back_translation_takes_one_run_with_codes(runs: Runs, tmp_path: Path, order: int) -> None:
    """As translator or as filter; the other run has one direction."""
    found = []
    for name, coded, languages in (
        ("found", runs.coded, {"mono_lang": OTHER[::order][0], "tgt_lang": OTHER[::order][1]}),
        ("expected", runs.of_other, {}),
    ):
        run, forward = (coded, runs.plain)[::order]
        for filters in ({"min_round_trip": 6.0}, {"min_forward_log_prob": -6.0}):
            settings, folder = {"keep_flagged": True, **filters}, tmp_path / f"{name} {min(filters)}"
            attnkit.back_translate(run, runs.tgt, folder, forward=forward, settings=settings, **languages, **QUICK)
            found.append([*pairs_of(folder), (folder / "dropped.tsv").read_text()])
    assert found[:2] == found[2:] and all(one[0] for one in found)


def test_augmentation_takes_one_run_with_codes(runs: Runs, tmp_path: Path) -> None:
    options: dict[str, Any] = {"settings": {"keep_flagged": True}, **QUICK}
    runs_of = {"forward": runs.plain, "backward": runs.coded}
    attnkit.augment(runs.src, runs.tgt, tmp_path / "one", **runs_of, src_lang=OTHER[1], tgt_lang=OTHER[0], **options)
    runs_of["backward"] = runs.of_other
    attnkit.augment(runs.src, runs.tgt, tmp_path / "two", **runs_of, **options)
    assert pairs_of(tmp_path / "one") == pairs_of(tmp_path / "two")


def test_a_report_shows_the_attention_of_each_run(runs: Runs, call: Call) -> None:
    text = sentences()[0]
    found = attnkit.report(runs.plain, runs.coded, texts=[text], quiet=True, **LANGUAGES).to_dict()["attention"]
    expected = attnkit.report(runs.plain, runs.of_other, texts=[text], quiet=True).to_dict()["attention"]
    for shown in (found, expected):
        for seen in shown[0]["seen"]:
            del seen["run"]
    assert found == expected
    half = attnkit.report(runs.plain, runs.coded, texts=[text], quiet=True, tgt_lang=OTHER[1]).to_dict()
    assert half["attention"][0]["seen"][1]["maps"] != expected[0]["seen"][1]["maps"]
    options = ["--src-lang", OTHER[0], "--tgt-lang", OTHER[1]]
    code, out, err = call("report", runs.plain, runs.coded, "--text", text, "--json", *options)
    assert code == 0, err
    shown = json.loads(out)["attention"]
    assert [seen["maps"] for seen in shown[0]["seen"]] == [seen["maps"] for seen in expected[0]["seen"]]
    with pytest.raises(UsageError, match="this run has no source languages to choose from"):
        attnkit.report(runs.plain, texts=[text], quiet=True, **LANGUAGES)


def test_tests_are_translated_in_the_languages(runs: Runs, call: Call) -> None:
    pair, options = (runs.src, runs.tgt), ["--src-lang", OTHER[0], "--tgt-lang", OTHER[1]]
    both, files = (runs.coded, runs.of_other), ["--src", runs.src, "--tgt", runs.tgt, "--json"]

    def is_same(tests: Any) -> bool:
        return all(score["baseline"] == score["system"] for test in tests for score in test["scores"])

    def called(command: str, chosen: list[str]) -> Any:
        code, out, err = call(command, *both, *files, *chosen)
        assert code == 0, err
        return json.loads(out)

    for chosen in (options, options[:2], options[2:]):
        expected = len(chosen) == 4
        assert is_same(called("compare", chosen)) == expected
        assert is_same(called("report", chosen)["tests"]) == expected
        given = dict(zip([name.strip("-").replace("-", "_") for name in chosen[::2]], chosen[1::2], strict=True))
        assert is_same(attnkit.report(*both, tests=[pair], quiet=True, **given).to_dict()["tests"]) == expected
        assert is_same([one.to_dict() for one in attnkit.compare(both, [pair], **given)]) == expected


def test_languages_that_nothing_uses_are_refused(runs: Runs, call: Call, tmp_path: Path) -> None:
    src, tgt = runs.src, runs.tgt
    refused: list[tuple[str, list[Any], Callable[..., Any]]] = [
        ("--run", ["clean", src, tgt, "-o", tmp_path / "x"], partial(attnkit.clean, src, tgt, tmp_path / "x")),
        ("--src or --text", ["report", runs.coded, "-o", tmp_path / "x"], partial(attnkit.report, runs.coded)),
        ("a run", ["compare", src, tgt, "--tgt", tgt], partial(attnkit.compare, [src, tgt], [(src, tgt)])),
    ]
    for option, name in (("--src-lang", "src_lang"), ("--tgt-lang", "tgt_lang")):
        for needs, command, called in refused:
            code, out, err = call(*command, option, "nonsense")
            assert (code, out) == (2, "") and not (tmp_path / "x").exists()
            assert err.startswith(f"error: {option} requires {needs}\n  at {option}\nhelp: leave out {option}\n")
            with pytest.raises(UsageError, match=f"{option} requires "):
                called(**{name: "nonsense"})
    code, _, err = call("back-translate", runs.plain, tgt, "-o", tmp_path / "x", "--mono-lang", "nonsense")
    needs = "--forward, or an imported run with language codes"
    assert code == 2 and err.startswith(f"error: --mono-lang requires {needs}\n  at --mono-lang\n")
    assert not (tmp_path / "x").exists()


def test_a_shortlist_is_for_all_directions(runs: Runs, call: Call, tmp_path: Path) -> None:
    tokens, options = tmp_path / "tokens.tsv", ["--src-lang", OTHER[0], "--tgt-lang", OTHER[1]]
    code, _, err = call("align", runs.src, runs.tgt, "--run", runs.coded, "-o", tokens, "--summary")
    assert code == 0, err
    code, out, err = call("translate", runs.coded, "-i", runs.src, "--shortlist", tokens, *options)
    assert code == 0, err
    assert call("translate", runs.coded, "-i", runs.src, *options)[1] != out, "the shortlist matters"
    lines = runs.src.read_text().split("\n")[:-1]
    for loading, calling in ((LANGUAGES, {}), ({}, LANGUAGES)):
        options = {"shortlist": tokens, "device": "cpu", "threads": 1, **loading}
        found = attnkit.Translator.load(runs.coded, **options).translate_texts(lines, **calling)
        assert [text for (text,) in found] == out.split("\n")[:-1]
    pipeline = load_translator([runs.coded])
    run = pipeline.runs[0]
    pipeline.shortlist = shortlist = LexiconShortlist(tokens, run.src_tokenizer, run.tgt_tokenizer)
    pipeline.set_languages(LanguagePair(*OTHER))
    for line, ids in zip(pipeline.stream(lines), pipeline.src_tokenizer.encode(lines), strict=True):
        allowed = {*shortlist.of(ids).tolist()}
        assert {*line.outputs[0].ids[0][1:]} <= allowed, "those of the line, but for the forced code"
        assert {*ids} <= allowed, "names can be copied, as both sides have the same entries"
