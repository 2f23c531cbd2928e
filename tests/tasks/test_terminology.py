"""Glossaries in translations: in all vocabularies, engines and batches; summaries, JSON and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnkit
from attnkit.cli.main import main
from attnkit.data.loader import Batching
from attnkit.engine.seq2seq import LocalSearch
from attnkit.errors import UsageError
from attnkit.tasks.translation.documents import DocumentTranslator
from attnkit.tasks.translation.placement import find_words
from attnkit.tasks.translation.term_placement import MissingTerm, substitutes
from attnkit.tasks.translation.terminology import Terminology, expected_forms
from attnkit.tasks.translation.translated_line import Output, TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator
from attnkit.tasks.translation.word_links import word_weights
from attnkit.text.config import VocabularyConfig
from attnkit.text.glossary import Glossary
from attnkit.text.inline_symbols import MaskedText
from attnkit.text.vocabulary import train_vocabulary
from attnkit.text.word_boundaries import count_phrases

LINES = ["1 2 3 4", "", "5 6 7? 8 9! 1 2", "3", "4 4 4 1 9 0 2", "1 1 1"]
TERMS = {"1": "77", "2 3": ("8 8", "90"), "9": ""}


def run_command(monkeypatch: pytest.MonkeyPatch, *command: Any) -> int:
    monkeypatch.setattr("sys.argv", ["attnkit", *map(str, command)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char"])
def test_forms_are_tokens_that_decode_to_them(kind: Any) -> None:
    text = ["der Hund und die Hunde, ein Hund. 他打冰球", "Hund Eis 冰球 C++ die Hunde"] * 3
    tokenizer = train_vocabulary(text, VocabularyConfig(kind=kind, size=600, min_frequency=1))
    terminology = Terminology(Glossary({"a": "Hund", "b": "冰球", "c": ("C++", "die Hunde")}), tokenizer)
    before = tokenizer.encode(["ein"])[0]
    for source, n_forms in (("x a", 1), ("x b", 1 if kind == "word" else 2), ("x c", 2)):
        (term,) = terminology.required(source)
        assert len(term.first_forms) == len(term.texts) and n_forms <= len(term.forms) <= 3
        assert tokenizer.decode(term.first_forms) == list(term.texts)
        decoded = set(tokenizer.decode([[*before, *form] for form in term.forms]))
        assert {f"ein {text}" for text in term.texts} <= decoded
        assert decoded <= {f"ein{space}{text}" for text in term.texts for space in (" ", "")}


def test_an_empty_translation_attends_to_nothing() -> None:
    """Of any run that translates a line with a term to nothing."""
    tokenizer = train_vocabulary(["ein Hund"] * 3, VocabularyConfig(kind="char", size=300, min_frequency=1))
    output = Output("", 0.0, 0.0, [[]], True, [[]], tokenizer)
    ids = tokenizer.encode(["a dog"])
    source = MaskedText("a dog", has_symbols=False)
    line = TranslatedLine("a dog", ids, [output], tokenizer, masked=source, read=["a dog"])
    assert word_weights(line, tokenizer, [], find_words("a dog")).shape == (0, 2)


def place(source: str, text: str, links: dict[str, dict[str, float]], **terms: str) -> list[str]:
    """Return texts with terms in place, given the attention of words of the text to words of the source."""
    words, sources = find_words(text), find_words(source)
    names, of_source = ([text[a:b] for a, b in words], [source[a:b] for a, b in sources])
    weights = np.array([[links.get(word, {}).get(one, 0.0) for one in of_source] for word in names])
    spans = ((source.index(term), source.index(term) + len(term), (form,)) for term, form in terms.items())
    return list(substitutes(text, weights, words, sources, [MissingTerm(*span) for span in spans]))


def test_terms_take_the_place_of_the_words_that_attend_to_them() -> None:
    source, text = "The dog runs.", "Le chien joue."
    links = {"Le": {"The": 0.8, "dog": 0.2}, "chien": {"dog": 0.9}, "joue": {"runs": 0.7}, ".": {"dog": 0.95}}
    assert place(source, text, links, dog="toutou") == ["Le toutou joue."]  # no mark is a translation
    assert place(source, text, links, dog="toutou", runs="court") == ["Le toutou court."]
    assert place(source, "Il joue.", {"joue": {"runs": 0.7, "dog": 0.3}}, dog="toutou") == []
    assert place(source, "", {}, dog="toutou") == []
    # An article may be joined to the word, whose attention is then at the article; a word at the beginning stays one.
    links = {"L'artiste": {"The": 0.6, "artist": 0.2}, "dort": {"sleeps": 0.8, "artist": 0.2}}
    assert place("The artist sleeps", "L'artiste dort", links, artist="acteur") == ["Acteur dort", "L'acteur dort"]
    # Several words may be what was written for a term, and two terms never share one.
    links = {word: {"potatoes": share} for word, share in (("pommes", 0.9), ("de", 0.8), ("terre", 0.9), ("bon", 0.1))}
    assert place("good potatoes", "bon pommes de terre", links, potatoes="patates") == ["bon patates"]
    assert place("good potatoes", "bon pommes de terre", links, potatoes="patates", good="x") == []


def test_a_translation_may_begin_with_a_term_in_lower_case(trained: Path) -> None:
    terminology = Terminology(Glossary({"a": "hund"}), load_translator([trained], device="cpu").tgt_tokenizer)
    terms = terminology.required("a")
    assert [terminology.uses(terms, text)[0].is_used for text in ("Hund 1", "1 Hund", "1 hund")] == [True, False, True]


def test_terms_in_capitals_may_be_translated_in_capitals() -> None:
    (found,) = Glossary({"Dog": ["Hund"]}).find("A DOG")
    assert expected_forms(found, "DOG") == ("HUND", "Hund")
    (found,) = Glossary({"dog": ["hund"]}).find("Dog")
    assert expected_forms(found, "Dog") == ("hund", "Hund")


def test_a_sentence_may_begin_with_a_term_in_lower_case(trained: Path) -> None:
    tokenizer = load_translator([trained], device="cpu").tgt_tokenizer
    terminology = Terminology(Glossary({"dog": "hund", "Rose": "rose"}), tokenizer)
    texts = [term.texts for term in terminology.required("Dog and dog, Rose")]
    assert texts == [("hund", "Hund"), ("hund",), ("rose",)]
    for text, expected in (("Hund, rose", [True, False, True]), ("Hund hund", [True, True, False]), ("", [False] * 3)):
        assert [use.is_used for use in terminology.uses(terminology.required("Dog and dog, Rose"), text)] == expected


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 4, "num_hypotheses": 3}, {"min_length": 5}])
def test_translations_have_the_terms_in_any_engine_and_batch(trained: Path, options: dict[str, Any]) -> None:
    found: list[list[Any]] = []
    for engine, size in (("compiled", 64), ("torch", 64), ("torch", 1)):
        translator = load_translator([trained], device="cpu", engine=engine)
        translator.segmenter.policy = "sentences"
        plain = list(translator.stream(LINES, translator.configure(options)))
        translator.terminology = Terminology(Glossary(TERMS), translator.tgt_tokenizer, translator.longest)
        found.append(list(translator.stream(LINES, translator.configure(options), Batching(size))))
        assert [one.outputs for one in found[-1][:4:2]] != [one.outputs for one in plain[:4:2]]
        assert [one.ids for one in found[-1][3].outputs] == [one.ids for one in plain[3].outputs]
        assert not found[-1][1].terms
    for line, *same in zip(*found, strict=True):
        for other in same:
            assert [one.ids for one in other.outputs] == [one.ids for one in line.outputs]
            assert [one.score for one in other.outputs] == pytest.approx([one.score for one in line.outputs], abs=1e-4)
        assert all(term.is_used for term in line.terms) and "term" not in line.signs
        for output in line.outputs:
            for texts in {term.targets for term in line.terms}:
                n = sum(term.targets == texts for term in line.terms)
                assert count_phrases(output.text, texts) >= n, (output.text, texts)
    assert [[term.source for term in line.terms] for line in found[0]] == [
        ["1", "2 3"], [], ["9", "1"], [], ["1", "9"], ["1", "1", "1"]
    ]  # fmt: skip


def test_what_a_model_cannot_write_is_missed_and_said(trained: Path, workshop: Any) -> None:
    run = workshop.random_run(trained, "transformer")
    translator = TranslationPipeline([run], LocalSearch([run.model], run.device))
    translator.longest = 12
    long = " ".join("7" * 20)
    translator.terminology = Terminology(Glossary({"1": "5", "2": long}), translator.tgt_tokenizer, translator.longest)
    (line,) = translator.stream(["2 1"], translator.configure({"max_length": 12}))
    assert [(term.source, term.is_used) for term in line.terms] == [("2", False), ("1", True)]
    assert "term" in line.signs
    # What is suppressed cannot come: the translation stays as it is, and the term is missed.
    translator.suppress(["5"])
    kept, translator.terminology = translator.terminology, None
    plain = translator.translate(["1 3"], max_length=12)
    translator.terminology = kept
    (line,) = translator.stream(["1 3"], translator.configure({"max_length": 12}))
    assert [line.outputs[0].text] == plain and not line.terms[0].is_used
    with pytest.raises(UsageError, match="beam search"):
        translator.translate(["1"], sampling=True, max_length=12)


def test_documents_have_the_terms(trained: Path) -> None:
    translator = load_translator([trained], device="cpu")
    translator.terminology = Terminology(Glossary(TERMS), translator.tgt_tokenizer, translator.longest)
    documents = DocumentTranslator(translator)
    from attnkit.formats.documents import parse_document
    from attnkit.formats.passages import render

    pieces = parse_document("<p>1 2 <b>3</b> 4</p>", "html", Path("page.html"))
    text = render(documents.translate(pieces))
    assert "<b>" in text and (documents.counts.signs.n_terms, documents.counts.signs.n_used) == (2, 2)


def test_the_command(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("1 2 3 4\n5 6 7\n")
    terms = tmp_path / "terms.tsv"
    terms.write_text("1\t77\n2 3\t88\t90\n")
    common = ("translate", trained, "-i", tmp_path / "in", "--device", "cpu")
    out = tmp_path / "out"
    assert run_command(monkeypatch, *common, "--glossary", terms, "-o", out, "--resume") == 0
    assert "2 of 2 glossary terms are in the translations (100.0%)" in capsys.readouterr().err
    assert "77" in out.read_text().split("\n")[0]
    assert run_command(monkeypatch, *common, "--glossary", terms, "--json") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert [term["source"] for term in first["terms"]] == ["1", "2 3"] and second["terms"] == []
    assert run_command(monkeypatch, *common, "--glossary", terms, "--sampling") == 2
    assert "a glossary needs a beam search" in capsys.readouterr().err
    assert run_command(monkeypatch, *common, "--glossary", tmp_path / "none") == 2
    assert "no such file" in capsys.readouterr().err
    terms.write_text("\n")
    assert run_command(monkeypatch, *common, "--glossary", terms) == 3
    assert "the glossary has no terms" in capsys.readouterr().err
    assert run_command(monkeypatch, *common, "--glossary", tmp_path / "in", "-o", tmp_path / "in") == 2
    assert run_command(monkeypatch, *common) == 0
    assert all("terms" not in line for line in capsys.readouterr().out.splitlines())


def test_the_library(trained: Path) -> None:
    translator = attnkit.Translator.load(trained, device="cpu")
    with pytest.warns(UserWarning, match=r"not trained to read terms.*annotate_terms=true"):
        one, other = translator.translate(["1 2", "5 6"], glossary={"1": ["77", "78"]})
    assert one.terms[0].is_used and other.terms == []
    assert one.to_dict()["terms"] == [{"source": "1", "targets": ("77", "78"), "is_used": True}]
    assert translator.translate(["1 2"])[0].terms == []
    with pytest.warns(UserWarning, match="not trained to read terms"):
        assert next(translator.translate_stream(["1 2"], glossary={"1": ""})).terms[0].targets == ("1",)
    with pytest.warns(UserWarning, match="not trained to read terms"):
        assert "77" in translator.translate_document("<p>1 2</p>", "html", glossary={"1": "77"}).text
