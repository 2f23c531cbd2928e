"""A language code or tag at the start of a line or passage is that of all its sentences, on both sides."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

from directions import MODELS, Imported, import_twice
from translators import marian_folder, sentences

import attnkit
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.score import score_pairs
from attnkit.tasks.translation.segmenting import Segmenter
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.extension import extend_vocabulary
from attnkit.text.tags import carry_code, find_code, leading_code
from attnkit.text.tokenizer import Tokenizer

PARTS = ["Ba be.", "Bo bi.", "Du ba."]
LINES = [f"{line.strip('.!').capitalize()}." for line in sentences()[:60]]
QUICK = {"max_length": 12, "min_length": 4, "beam_size": 2}


@pytest.fixture(scope="module", params=MODELS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return import_twice(tmp_path_factory.mktemp("codes"), request.param)


def code_of(imported: Imported, language: str | None) -> str:
    codes = load_run(imported.run, device="cpu").src_tokenizer.language_codes
    return str(find_code(codes, str(language)))


def test_a_code_of_a_target_is_scored_with_all_its_sentences(imported: Imported) -> None:
    run = load_run(imported.run, device="cpu")
    segmenter = Segmenter(run.src_tokenizer, 100, None, "sentences")
    code = code_of(imported, imported.other.tgt)

    def score(*pairs: tuple[str, str]) -> float:
        found = list(score_pairs(run, run.model, run.device, pairs, segmenter=segmenter))
        assert sum(len(one.ids) for one in found) == len(PARTS)
        return sum(one.log_prob for one in found)

    each = score(*[(src, f"{code} {tgt}") for src, tgt in zip(PARTS, PARTS[::-1], strict=True)])
    line, target = " ".join(PARTS), " ".join(PARTS[::-1])
    assert score((line, f"{code} {target}")) == pytest.approx(each)
    assert score((line, f"  {code} {target}")) == pytest.approx(each)
    assert score((line, target)) != pytest.approx(each)
    first, second = code, code_of(imported, imported.usual.src)
    own = [f"{first} A.", f"{second} B.", "C."]
    assert carry_code(run.tgt_tokenizer, " ".join(own), own) == [*own[:2], f"{first} C."]


@pytest.mark.parametrize("format", ["markdown", "html", "lines"])
def test_a_code_of_a_passage_is_that_of_all_its_sentences(imported: Imported, format: str) -> None:
    """A code is neither protected, and so put back, nor lost."""
    if format == "markdown" and imported.usual.src == "en":
        return  # to Markdown, __fr__ is a strong "fr"
    language = imported.other.src
    code, translator = code_of(imported, language), attnkit.Translator.load(imported.run, device="cpu", threads=1)
    n_other = 0
    for text in (
        "Ba be. Bo bi. Du ba.",
        "Ba be. Bo https://a.de bi. Du ba.",  # put back
        "Ba be. Bo <b>bi bo ba</b> da. Du <b>ba</b>.",
        "<b>Ba</b> be.",
        *(" ".join(LINES[first : first + 10]) for first in range(0, 60, 10)),
    ):
        if format == "lines":
            texts = [text, f"{code} {text}"]
            usual, found = (one.text for one in translator.translate_protected(texts, **QUICK))
            (chosen,) = (one.text for one in translator.translate_protected(texts[:1], src_lang=language, **QUICK))
        else:
            pages = [f"{begin}{text}" for begin in ("", f"{code} ")]
            usual, found = (translator.translate_document(page, format, **QUICK).text for page in pages)
            chosen = translator.translate_document(pages[0], format, src_lang=language, **QUICK).text
        assert found == chosen and code not in found
        n_other += found != usual
    assert n_other >= 1


def test_results_show_sentences_without_their_code(imported: Imported) -> None:
    code, translator = (
        code_of(imported, imported.other.src),
        attnkit.Translator.load(imported.run, device="cpu", threads=1),
    )
    (passage,) = translator.translate_document(f"{code} {' '.join(PARTS)}", "html", **QUICK).passages
    assert passage.source.startswith(code) and [one.source for one in passage.sentences] == PARTS
    assert not any(one.restored for one in passage.sentences)
    (alone,) = translator.translate_document(code, "html", **QUICK).passages
    assert [one.source for one in alone.sentences] == [code], "text of nothing but a code is a text"


def test_a_code_is_no_lost_part_of_a_line(imported: Imported) -> None:
    code, pipeline = code_of(imported, imported.other.src), load_translator([imported.run])
    plain, coded, inside = pipeline.stream(["Ba be.", f"{code} Ba be.", "Ba snake_case be."], pipeline.configure(QUICK))
    assert "lost" not in plain.signs and "lost" not in coded.signs and "lost" in inside.signs


def test_a_code_of_a_marian_is_that_of_all_sentences_of_a_passage(tmp_path: Path) -> None:
    marian_folder(tmp_path / "hub")
    run = import_huggingface(tmp_path / "hub", tmp_path / "run").path
    translator = attnkit.Translator.load(run, device="cpu", threads=1)
    found = translator.translate_document(f"&gt;>fr&lt;&lt; {' '.join(PARTS)}", "html", **QUICK).text
    each = [one.text for one in translator.translate([f">>fr<< {part}" for part in PARTS], **QUICK)]
    assert found == " ".join(each) and "fr<<" not in found
    other = translator.translate_document(f"&gt;>de&lt;&lt; {' '.join(PARTS)}", "html", **QUICK).text
    assert other != found


@pytest.mark.parametrize("kind", ["bpe", "word", "sentencepiece"])
def test_a_tag_that_the_vocabulary_has_is_carried(kind: str, tmp_path: Path) -> None:
    tokenizer = tagged(kind, tmp_path)
    assert leading_code(tokenizer, "<2de> A dog.") == "<2de> " and leading_code(tokenizer, "<2fr> A dog.") == ""
    assert carry_code(tokenizer, "<2de> A. B.", ["<2de> A.", "B."]) == ["<2de> A.", "<2de> B."]
    segments = Segmenter(tokenizer, 100, None, "sentences").split("<2de> A dog runs. A cat sits.", [0] * 9)
    tag = tokenizer.token_id("<2de>")
    assert len(segments) == 2 and all(tag in segment.ids[:2] for segment in segments)


def tagged(kind: str, place: Path) -> Tokenizer:
    """Return a vocabulary with a tag."""
    if kind != "sentencepiece":
        (place / "text").write_text("A dog runs. A cat sits.\n" * 9)
        return attnkit.vocab(place / "text", settings={"kind": kind, "size": 300, "symbols": ["<2de>"]})
    marian_folder(place / "hub")
    run = import_huggingface(place / "hub", place / "run").path
    return extend_vocabulary(load_run(run, device="cpu").src_tokenizer, ["<2de>"])
