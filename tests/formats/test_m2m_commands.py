"""Commands, calls and streams translate in the direction of an imported model that is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

from directions import MODELS, Imported, import_twice, write_lines
from translators import sentences

import attnkit
from attnkit.data.loader import Batching
from attnkit.tasks.translation.confidence import translate_development_set
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.glossary import Glossary

SETTINGS: dict[str, Any] = {"max_length": 20, "length_penalty": 1.0, "beam_size": 4}
KEEP_ALL = ["--any-language", "--min-characters", "1", "--keep-copies", "--max-ratio", "100", "--duplicates", "keep"]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=MODELS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return import_twice(tmp_path_factory.mktemp("commands"), request.param)


def test_a_stream_keeps_its_direction(imported: Imported) -> None:
    lines, (src, tgt) = ["ba be", *["x"] * 4094, *sentences()[:20]], imported.other
    translator = attnkit.Translator.load(imported.run, device="cpu", threads=1)
    quick: dict[str, Any] = {"beam_size": 1, "min_length": 4, "max_length": 6, "scores": False}
    expected = [one.text for one in translator.translate_stream(lines, **quick)]
    stream = translator.translate_stream(lines, **quick)
    found = [next(stream).text]
    between = translator.translate(lines[-20:], src_lang=src, tgt_lang=tgt, **quick)
    assert [one.text for one in between] != expected[-20:]
    assert found + [one.text for one in stream] == expected
    sources, scores = sentences()[:20], translator.score_stream(sentences()[:20], sentences()[20:40])
    first = [next(scores).log_prob]
    translator.translate(["ba be"], src_lang=src, tgt_lang=tgt, **quick)
    usual = [one.log_prob for one in translator.score(sources, sentences()[20:40])]
    assert first + [one.log_prob for one in scores] == usual


def test_a_stream_keeps_its_phrases_and_terms(imported: Imported) -> None:
    translator, few = load_translator([imported.run]), Batching(window=4)
    lines, config = sentences()[:12], translator.configure(SETTINGS)
    plain = [one.outputs[0].text for one in translator.stream(lines, config, few)]
    words = plain[-1].split()
    term, phrase = lines[-1].split()[0], next(word for word in words if word.isalpha())
    translator.set_glossary(Glossary({term: "zzz"}), print)
    translator.suppress([phrase])
    strict = [(one.outputs[0].text, one.terms) for one in translator.stream(lines, config, few)]
    assert strict[-1][1] and phrase not in strict[-1][0].split()
    stream = translator.stream(lines, config, few)
    found = [next(stream)]
    translator.set_glossary(None, print)
    translator.suppress([])
    assert [(one.outputs[0].text, one.terms) for one in chain(found, stream)] == strict
    stream = translator.stream(lines, config, few)
    found = [next(stream)]
    translator.set_glossary(Glossary({term: "zzz"}), print)
    translator.suppress([phrase])
    assert [one.outputs[0].text for one in chain(found, stream)] == plain


def find_limit(imported: Imported, lines: list[str], texts: list[str]) -> float:
    """Return a limit for scores of pairs by which ``clean`` keeps others with any other choice of languages."""
    src, tgt = imported.other
    usual = attnkit.Translator.load(imported.run, device="cpu", threads=1)
    right = attnkit.Translator.load(imported.run_of_other, device="cpu", threads=1).score(lines, texts)
    wrong = [usual.score(lines, texts, **chosen) for chosen in ({}, {"src_lang": src}, {"tgt_lang": tgt})]
    means = [[one.log_prob / one.n_tokens for one in scores] for scores in (right, *wrong)]
    every = sorted(chain(*means))
    gaps = [(a + b) / 2 for a, b in pairwise(every) if b - a > 1e-4]
    kept = {least: [[mean > least for mean in scores] for scores in means] for least in gaps}
    return next(least for least, sides in kept.items() if all(map(any, sides)) and sides[0] not in sides[1:])


def test_commands_take_both_languages(imported: Imported, call: Call, tmp_path: Path) -> None:
    lines, chosen = sentences()[:40], ["--src-lang", imported.other.src, "--tgt-lang", imported.other.tgt]
    mono = write_lines(tmp_path / "mono", lines)
    code, out, err = call("translate", imported.run_of_other, "-i", mono)
    assert code == 0, err
    texts = write_lines(tmp_path / "texts", [line or "x" for line in out.split("\n")[:-1]])
    least = find_limit(imported, lines, texts.read_text().split("\n")[:-1])
    made: list[Path] = []

    def results(run: Path, options: Sequence[Any]) -> dict[str, str]:
        """Return what commands make of the lines."""
        code, out, err = call("translate", run, "-i", mono, *options)
        assert code == 0, err
        code, scores, err = call("score", run, mono, texts, *options)
        assert code == 0, err
        made.append(tmp_path / f"made {len(made)}")
        code, _, err = call("distill", run, mono, "-o", made[-1] / "distilled", "--keep-flagged", *options)
        assert code == 0, err
        limits = ["--min-log-prob", least]
        code, _, err = call("clean", mono, texts, "-o", made[-1] / "clean", "--run", run, *limits, *KEEP_ALL, *options)
        assert code == 0, err
        written = {name: (made[-1] / name).read_text() for name in ("distilled/pairs.tgt", "clean/dropped.tsv")}
        return {"translate": out, "score": scores, **written}

    found = results(imported.run, chosen)
    assert found == results(imported.run_of_other, [])
    for options in ([], chosen[:2], chosen[2:]):
        other = results(imported.run, options)
        assert [name for name in found if found[name] == other[name]] == [], options


def test_cleaning_by_calls_takes_both_languages(imported: Imported, tmp_path: Path) -> None:
    lines, texts, (src, tgt) = sentences()[:40], sentences()[40:80], imported.other
    sides = write_lines(tmp_path / "src", lines), write_lines(tmp_path / "tgt", texts)
    settings: dict[str, Any] = {"min_log_prob": find_limit(imported, lines, texts), "check_languages": False}
    settings |= {"min_characters": 1, "max_ratio": None, "duplicates": "keep", "drop_copies": False}
    dropped = []
    for number, (run, chosen) in enumerate(
        [
            (imported.run_of_other, {}),
            (imported.run, {"src_lang": src, "tgt_lang": tgt}),
            (imported.run, {}),
            (imported.run, {"src_lang": src}),
            (imported.run, {"tgt_lang": tgt}),
        ]
    ):
        attnkit.clean(*sides, tmp_path / str(number), settings=settings, run=run, quiet=True, **chosen)
        dropped.append((tmp_path / str(number) / "dropped.tsv").read_text())
    assert dropped[0] == dropped[1] and dropped[0] not in dropped[2:]


def test_confidence_is_of_the_direction_of_each_line(imported: Imported) -> None:
    lines, pipeline = sentences()[:20], load_translator([imported.run])
    names = [":".join(imported.other), ":".join(imported.usual)] * 10
    found = translate_development_set(pipeline, lines, names)
    for k, run in enumerate((imported.run_of_other, imported.run)):
        expected = translate_development_set(load_translator([run]), lines[k::2], [""] * 10)
        assert [one.outputs[0].ids for one in found[k::2]] == [one.outputs[0].ids for one in expected]
        assert [one.outputs[0].log_prob for one in found[k::2]] == [one.outputs[0].log_prob for one in expected]
