"""Runs with placeholders and annotated terms: their training text, translations, scores and documents."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnkit
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.cli.main import main
from attnkit.data.config import DataConfig
from attnkit.decoding.hypothesis import Hypothesis
from attnkit.engine.resolve import resolve
from attnkit.engine.search_backend import SearchJob, search_parts
from attnkit.errors import RunError, UsageError
from attnkit.formats.documents import parse_document
from attnkit.formats.passages import render
from attnkit.tasks.translation.data import open_prepared
from attnkit.tasks.translation.documents import DocumentTranslator, find_words
from attnkit.tasks.translation.inline_text import SHARE, TrainingText
from attnkit.tasks.translation.second_search import SecondSearch
from attnkit.tasks.translation.translator import load_translator
from attnkit.tasks.translation.word_links import word_anchors
from attnkit.tasks.translation.word_pairs import WordPairs
from attnkit.text.config import VocabularyConfig
from attnkit.text.glossary import Glossary
from attnkit.text.inline_symbols import ANNOTATION, END, PLACEHOLDERS, TERM, TRANSLATION, placeholders_in
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

NOUNS = {"dog": "Hund", "cat": "Katze", "horse": "Pferd", "child": "Kind", "tree": "Baum", "woman": "Frau"}
VERBS = {"sees": "sieht", "finds": "findet", "follows": "verfolgt", "paints": "malt"}
ADJECTIVES = {"black": ("schwarzer", "schwarze", "schwarzes"), "small": ("kleiner", "kleine", "kleines")}
GENDERS = {"Hund": 0, "Baum": 0, "Katze": 1, "Frau": 1, "Pferd": 2, "Kind": 2}
PARTS = ("https://a.org/{}", "m{}@b.de", "{{n{}}}", "{}{}:30")


def draw_pairs(n: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield sentences of English and German, a third of them with a part that stays."""
    drawn = random.Random(seed)
    for _ in range(n):
        one, other, verb, adjective = (drawn.choice(sorted(words)) for words in (NOUNS, NOUNS, VERBS, ADJECTIVES))
        gender = GENDERS[NOUNS[one]]
        source = f"a {adjective} {one} {verb} {other}"
        subject = f"{('ein', 'eine', 'ein')[gender]} {ADJECTIVES[adjective][gender]} {NOUNS[one]}"
        target = f"{subject} {VERBS[verb]} {NOUNS[other]}"
        if drawn.random() < 1 / 3:
            part = drawn.choice(PARTS).format(drawn.randint(1, 2), drawn.randint(0, 9))
            source, target = f"{source} at {part}", f"{target} bei {part}"
        yield source, target


@pytest.fixture(scope="module")
def made(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, and with a run of both kinds of symbols that has seen a few steps."""
    folder = tmp_path_factory.mktemp("inline")
    for name, n, seed in (("train", 1500, 1), ("valid", 30, 2)):
        for side, lines in zip(("en", "de"), zip(*draw_pairs(n, seed), strict=True), strict=True):
            (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines))
    config = resolve(flags(folder), sets=settings(workshop), preset_name="tiny").config
    workshop.train(config, folder / "run")
    return folder


def flags(folder: Path) -> dict[str, Any]:
    sides = {"src": "en", "tgt": "de"}
    training = {f"data.{key}": [str(folder / f"train.{side}")] for key, side in sides.items()}
    return training | {f"data.valid_{key}": [str(folder / f"valid.{side}")] for key, side in sides.items()}


def settings(workshop: Any, **changes: Any) -> list[str]:
    given: dict[str, Any] = {"data__placeholders": True, "data__annotate_terms": True, "vocabulary__kind": "bpe"}
    given |= {"vocabulary__size": 420, "data__accept": True, "optimization__batch_tokens": 500}
    return workshop.settings(**{**given, "limits__max_steps": 40, "evaluation": {"every_steps": 20}, **changes})


def text_of(made: Path) -> list[tuple[str, str]]:
    """Return the training pairs as the model sees them."""
    prepared = open_prepared(made / "run" / "data")
    rows = [store.gather(np.arange(len(store))) for store in (prepared.pairs.src, prepared.pairs.tgt)]
    found = []
    for (ids, lengths), tokenizer in zip(rows, prepared.vocabularies, strict=True):
        starts = [0, *lengths.cumsum().tolist()]
        found.append(tokenizer.decode([ids[a:b].tolist() for a, b in pairwise(starts)]))
    return list(zip(*found, strict=True))


def test_training_pairs_have_placeholders_and_annotations(made: Path) -> None:
    pairs, original = text_of(made), list(draw_pairs(1500, 1))
    assert len(pairs) == len(original)
    n_learned = n_annotated = n_forms = 0
    for (source, target), (own, wanted) in zip(pairs, original, strict=True):
        assert sorted(placeholders_in(source)) == sorted(placeholders_in(target))
        assert not any(mark in source + target for mark in ("http", "@", "{", ":30"))
        n_learned += len(placeholders_in(source)) > (" at " in own)
        if TERM in source:
            n_annotated += 1
            shown = source.split(TRANSLATION)[1].split(END)[0].strip()
            n_forms += shown not in wanted
            assert TERM not in target and target.split(" bei ")[0] == wanted.split(" bei ")[0]
        elif not placeholders_in(source):
            assert (source, target) == (own, wanted)
    for n in (n_learned, n_annotated):
        assert SHARE / 2 < n / len(pairs) < 1.5 * SHARE
    assert 0 < n_forms < n_annotated  # adjectives in another gender
    assert len({symbol for source, _ in pairs for symbol in placeholders_in(source)}) == len(PLACEHOLDERS)


def test_words_that_translate_each_other() -> None:
    pairs = list(draw_pairs(1500, 3))
    words = WordPairs(pairs)
    n_found = 0
    for source, target in pairs[:200]:
        for (begin, end), (first, last) in words.find(source, target):
            one, other = source[begin:end], target[first:last]
            expected = {**NOUNS, **VERBS, **ADJECTIVES}[one]
            assert other in expected and (other == expected or one in ADJECTIVES)
            n_found += 1
    assert n_found > 400
    assert sorted(words.forms("black", "schwarze")) == ["schwarzer", "schwarzes"]
    assert words.forms("Black", "Schwarze") == [form.capitalize() for form in words.forms("black", "schwarze")]
    assert words.forms("dog", "Hund") == words.forms("nothing", "nichts") == []
    assert WordPairs([]).find("a dog", "ein Hund") == WordPairs([("", "")]).find("a", "b") == []


def test_a_pair_is_always_rewritten_alike() -> None:
    pairs = list(draw_pairs(300, 4))
    data = DataConfig(src=("a",), tgt=("b",), placeholders=True, annotate_terms=True)
    one, other = TrainingText(data, pairs), TrainingText(data, pairs)
    assert [one.rewrite(pair) for pair in pairs] == [other.rewrite(pair) for pair in reversed(pairs)][::-1]


LINES = ["see https://x.org/a?b=1 and {name}, 12 of 345", "", "｟1｠ 12:30 ｟term｠ a@b.de", "a dog", "%s 10 10 10 %s"]
KEPT = [["https://x.org/a?b=1", "{name}", "12", "345"], [], ["｟1｠", "12:30", "｟term｠", "a@b.de"], [], ["%s", "10"]]


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 3, "num_hypotheses": 2}])
def test_all_parts_are_kept_in_any_engine(made: Path, options: dict[str, Any]) -> None:
    found = []
    for engine in ("compiled", "torch"):
        translator = load_translator([made / "run"], device="cpu", engine=engine)
        translator.segmenter.policy = "sentences"
        found.append(list(translator.stream(LINES, translator.configure(options))))
        for line, kept in zip(found[-1], KEPT, strict=True):
            for output in line.outputs:
                assert [part for part in kept if part not in output.text] == []
                assert not {*PLACEHOLDERS, *ANNOTATION} & {*placeholders_in(output.text)} - {*kept}
    texts = [[output.text for line in lines for output in line.outputs] for lines in found]
    assert texts[0] == texts[1]


def test_symbols_are_text_to_other_runs(trained: Path) -> None:
    translator = load_translator([trained], device="cpu")
    ((part,),) = translator.segment(["1 ｟1｠ 12:30"], None, 0)
    assert part.text == "1 ｟1｠ 12:30" and part.required == ()
    ids = translator.tgt_tokenizer.encode(["2 ｟1｠ 3"])[0]
    line = translator.join("1", [part], [[Hypothesis(ids, 0.0, 0.0, None, True)]], translator.search)
    assert line.outputs[0].text == "2 ｟1｠ 3"


def test_sampling_and_library_calls(made: Path) -> None:
    translator = attnkit.Translator.load(made / "run")
    drawn = translator.translate(LINES, sampling=True, seed=3)
    assert len(drawn) == len(LINES) and not any("｟2｠" in one.text for one in drawn)
    scores = translator.score(["a dog at 12:30", "a dog at 12:31"], ["ein Hund bei 12:30", "ein Hund bei 12:31"])
    assert scores[0] == scores[1]
    assert translator.score(["a dog at 12:30"], ["ein Hund bei 12:31"])[0] != scores[0]


def test_terms_of_a_glossary_are_shown_to_the_model(made: Path) -> None:
    translator = load_translator([made / "run"], device="cpu")
    translator.set_glossary(Glossary({"dog": "Wolf", "black": "dunkler"}), print)
    ((part,),) = translator.segment(["a black dog at 12:30"], None, 0)
    assert part.text == "a black dog at ｟1｠"
    shown = SecondSearch(translator, [], []).show_terms(part)
    assert shown.text == f"a{TERM} black{TRANSLATION} dunkler{END}{TERM} dog{TRANSLATION} Wolf{END} at ｟1｠"
    assert shown.ids == translator.src_tokenizer.encode([shown.text])[0]
    ids = [translator.src_tokenizer.token_id(symbol) for symbol in (*ANNOTATION, PLACEHOLDERS[0])]
    assert [shown.ids.count(id) for id in ids] == [2, 2, 2, 1]
    (line,) = translator.stream(["a black dog at 12:30"])
    assert all(term.is_used for term in line.terms) and "12:30" in line.outputs[0].text
    assert translator.terminology is not None
    terms = translator.terminology.required("a black dog")
    # Another form is the model's choice; another word is not.
    for text, expected in (("ein dunkles Wölfen", [True, True]), ("ein schwarzer Wolf", [False, True])):
        assert [use.is_used for use in translator.terminology.uses(terms, text)] == expected
    # Too long with its annotations, it is read without.
    translator.segmenter.max_length = len(part.ids)
    assert SecondSearch(translator, [], []).show_terms(part) == part


def test_lines_that_lack_a_term_are_searched_again_with_it_shown(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First as they are, then with terms shown, then put in place (two searches), at last with hard constraints."""
    from attnkit.engine import search_backend
    from attnkit.tasks.translation import translator as module

    translator = load_translator([made / "run"], device="cpu")
    usual = translator.translate(["a dog sees tree"])[0]
    searched: list[tuple[list[str], bool]] = []

    def search(backend: Any, parts: Any, batches: Any, job: Any, progress: Any) -> Any:
        searched.append(([part.text for part in parts], job.joins is not None))
        return search_backend.search_parts(backend, parts, batches, job, progress)

    monkeypatch.setattr(module, "search_parts", search)
    word = next(word for word in usual.split() if len(word) > 2)
    lines = ["a dog sees tree", "a cat sees tree", "a child"]
    translator.set_glossary(Glossary({"dog": word, "cat": "Zebra"}), print)
    shown = f"a{TERM} cat{TRANSLATION} Zebra{END} sees tree"
    found = list(translator.stream(lines))
    assert searched[0] == (lines, False) and searched[1] == ([shown], False)
    assert not any(is_required for _, is_required in searched[2:4]) and searched[4][1]
    assert searched[2][0] in ([], [lines[1]]) and searched[4][0] in ([], [lines[1]])
    assert found[0].outputs[0].text == usual and "Zebra" in found[1].outputs[0].text


def test_words_of_the_source_are_found_through_symbols(made: Path) -> None:
    """Attention to each token of what the model reads leads to the word that it is of."""
    translator = load_translator([made / "run"], device="cpu")
    translator.set_glossary(Glossary({"dog": "Wolf"}), print)
    source = "a dog at https://x.org/a sees {name}, 12:30"
    config = translator.configure({"beam_size": 1})
    part = SecondSearch(translator, [], []).show_terms(translator.segment([source], None, 0)[0][0])
    (hypotheses,) = search_parts(translator.searcher, [part], [[0]], SearchJob(config, record=True))
    line = translator.join(source, [part], [hypotheses], config)
    words = find_words(source)
    output, n = line.outputs[0], len(line.source_ids[0])
    tokens = translator.src_tokenizer.tokens(line.source_ids[0])
    for token, word in (("▁sees", "sees"), ("｟1｠", "https://x.org/a"), ("｟2｠", "{name}"), ("｟as｠", "dog")):
        weights = np.zeros((len(output.ids[0]), n + 1))
        weights[:, tokens.index(token)] = 1
        object.__setattr__(output, "attention", [weights.tolist()])
        anchors = word_anchors(line, translator.tgt_tokenizer)
        assert [output.text[begin:end] for (begin, end), _ in anchors] == output.text.split()
        assert {next(source[a:b] for a, b in words if a == place) for _, place in anchors} == {word}


def test_documents_keep_their_parts(made: Path) -> None:
    translator = load_translator([made / "run"], device="cpu")
    documents = DocumentTranslator(translator)
    pieces = parse_document("<p>a <b>dog</b> at <i>12:30</i> sees https://x.org/a, 3.50</p>", "html", Path("page.html"))
    text = render(documents.translate(pieces))
    assert all(text.count(mark) == 1 for mark in ("<b>", "</b>", "<i>", "</i>", "12:30", "https://x.org/a"))


def test_a_run_resumes_and_refuses_other_settings(made: Path, workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = resolve(flags(made), sets=settings(workshop, limits__max_steps=6), preset_name="tiny").config
    workshop.train(config, run, stops=[4])
    whole = tmp_path / "whole"
    workshop.train(config, whole)
    sums = [RunFolder(path).checkpoint("last")[0].manifest.files["model.safetensors"] for path in (run, whole)]
    assert sums[0] == sums[1]


def test_what_cannot_be_combined_is_refused(made: Path, workshop: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs subwords"):
        resolve(flags(made), sets=settings(workshop, vocabulary__kind="word"), preset_name="tiny")
    vocabulary = train_vocabulary(["a dog"], VocabularyConfig(size=300, min_frequency=1))
    (tmp_path / "vocab.json").write_text(vocabulary.to_json())
    given = {**flags(made), "vocabulary_files": [str(tmp_path / "vocab.json")]}
    config = resolve(given, sets=settings(workshop), preset_name="tiny").config
    with pytest.raises(UsageError, match="symbols that the given vocabulary lacks"):
        workshop.train(config, tmp_path / "run")
    other = resolve(flags(made), sets=settings(workshop, data__annotate_terms=False, limits__max_steps=2)).config
    workshop.train(other, tmp_path / "other")
    with pytest.raises(RunError, match=r"differ in data\.placeholders"):
        load_translator([made / "run", tmp_path / "other"], device="cpu")


def test_a_vocabulary_of_ones_own_has_the_symbols(
    made: Path, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("a dog runs\n" * 9)
    for option, n_symbols in (("--placeholders", 32), ("--annotate-terms", 35)):
        output = tmp_path / f"vocab{option}.json"
        arguments = ["vocab", tmp_path / "text", "-o", output, "--size", "400", "--symbol", "<x>", option]
        monkeypatch.setattr("sys.argv", ["attnkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        tokenizer = Tokenizer.from_json(output.read_text())
        assert len(tokenizer.config.symbols) == n_symbols + 1 and tokenizer.token_id("<x>") is not None
        called = attnkit.vocab(
            tmp_path / "text",
            settings={"size": 400, "symbols": ["<x>"]},
            placeholders=True,
            annotate_terms=option != "--placeholders",
        )
        assert called.to_json() == tokenizer.to_json()
        given = {**flags(made), "vocabulary_files": [str(output)]}
        config = resolve(given, sets=settings(workshop, limits__max_steps=1), preset_name="tiny").config
        if option == "--placeholders":
            with pytest.raises(UsageError, match="needs symbols") as lacking:
                workshop.train(config, tmp_path / "lacking")
            assert "--annotate-terms" in str(lacking.value.help)
        else:
            workshop.train(config, tmp_path / "run")


def test_no_translation_has_a_symbol_that_its_source_lacks(made: Path) -> None:
    """A model that writes symbols anywhere is searched again without them, and samples without them."""
    translator = load_translator([made / "run"], device="cpu")
    bias = {"a dog": "｟7｠", "a cat 12:30": "｟1｠ ｟9｠"}  # lines and what a model might write
    for line, written in bias.items():
        ((part,),) = translator.segment([line], None, 0)
        assert translator.inline.faults(part.text, translator.tgt_tokenizer.encode([written])[0]) == (0, 1)
        allowed = translator.inline.restrict(part).allowed
        symbols = [translator.tgt_tokenizer.token_id(symbol) for symbol in (*PLACEHOLDERS, *ANNOTATION)]
        own = [translator.tgt_tokenizer.token_id(symbol) for symbol in placeholders_in(part.text)]
        assert allowed is not None and [id for id in symbols if id in allowed] == own
        assert len(allowed) == translator.tgt_tokenizer.n_words - len(symbols) + len(own)
    for options in ({"beam_size": 2}, {"sampling": True, "temperature": 2.0, "seed": 1}):
        for line in translator.stream(LINES, translator.configure(options)):
            raw = translator.tgt_tokenizer.decode(line.outputs[0].ids)
            known = {*placeholders_in(line.masked.text)}
            assert not {*placeholders_in("".join(raw))} - known and TERM not in "".join(raw)


def test_terms_with_a_number_inside_stay_terms(made: Path) -> None:
    translator = load_translator([made / "run"], device="cpu")
    translator.set_glossary(Glossary({"Boeing 747": "Flugzeug"}), print)
    (line,) = translator.stream(["a Boeing 747 at 12:30"])
    assert line.masked.text == "a Boeing 747 at ｟1｠"
    assert [(term.source, term.is_used) for term in line.terms] == [("Boeing 747", True)]
    assert "12:30" in line.outputs[0].text


def test_prefixes_have_the_placeholders_of_their_source(made: Path) -> None:
    translator = load_translator([made / "run"], device="cpu")
    (line,) = translator.stream(["a dog at 12:30"], prefixes=["Um 12:30 uhr 45"])
    assert line.outputs[0].text.startswith("Um 12:30 uhr 45") and line.outputs[0].text.count("12:30") == 1


def test_scores_are_those_of_the_search(made: Path) -> None:
    """Of the first search, whose words are all of the vocabulary."""
    translator = load_translator([made / "run"], device="cpu")
    config = translator.configure({"beam_size": 1, "max_length": 30})
    n_equal = 0
    for line in ("a dog at 12:30", "see https://x.org/a and {name}", "a small cat", "a black horse sees child"):
        ((part,),) = translator.segment([line], None, 0)
        (found,) = search_parts(translator.searcher, [part], [[0]], SearchJob(config))
        best = translator.join(line, [part], [found], config).outputs[0]
        if best.finished and translator.tgt_tokenizer.encode([translator.mask(line).mask_other(best.text)]) == best.ids:
            assert translator.score([line], [best.text])[0] == pytest.approx(best.log_prob, abs=1e-3)
            n_equal += 1
    assert n_equal
