"""``translate --shortlist`` and ``--replace-unknowns``, from files to lines."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit.data.loader import Batching
from attnkit.engine.seq2seq import LocalSearch
from attnkit.errors import RunError, UsageError
from attnkit.protocols import UNK_ID
from attnkit.tasks.translation.shortlist import FREQUENT, LexiconShortlist, UnknownReplacer, source_words
from attnkit.tasks.translation.stream import TranslateRequest, translate_stream
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator
from attnkit.tasks.word_alignment.lexicon import Aligner
from attnkit.tasks.word_alignment.lexicon import AlignRequest as AlignRequest
from attnkit.text.config import VocabularyConfig
from attnkit.text.sentences import split_line
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.translation_lexicon import Entries, lexicon_lines
from attnkit.text.vocabulary import train_vocabulary


def stream(run: Path, lines: Iterable[str], folder: Path, **options: Any) -> list[str]:
    source = folder / "input.txt"
    source.write_bytes("".join(line + "\n" for line in lines).encode())
    request = TranslateRequest([run], source, device="cpu", threads=1, **options)
    return [line for _, group in translate_stream(request, lambda text: None) for line in group]


# --- shortlist


@pytest.fixture(scope="module")
def tokens(workshop: Any, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("lexicon") / "tokens.tsv"
    aligner = Aligner(AlignRequest(workshop.file("train.src"), workshop.file("train.tgt"), run=trained, best=3))
    with path.open("w", encoding="utf-8") as book:
        aligner.learn(book, links=False)
    return path


def own_lexicon(path: Path, tokenizer: Tokenizer, rows: list[tuple[int, int]], frequent: list[int]) -> Path:
    """Write a lexicon of one vocabulary for both sides."""
    columns = list(zip(*rows, strict=True))
    entries = Entries(np.array(columns[0]), np.array(columns[1]), np.full(len(rows), 0.5))
    prints = (tokenizer.fingerprint, tokenizer.fingerprint)
    lines = lexicon_lines(entries, vocabularies=prints, frequent=frequent)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["transformer", "rnn"])
def random_translator(request: pytest.FixtureRequest, workshop: Any, trained: Path) -> TranslationPipeline:
    run = workshop.random_run(trained, request.param)
    return TranslationPipeline([run], LocalSearch([run.model], run.device))


def digits(n: int, seed: int = 3) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices("0123456789", k=rng.randint(1, 7))) for _ in range(n)]


def test_what_a_sentence_may_use(trained: Path, tmp_path: Path) -> None:
    tokenizer = load_translator([trained], device="cpu").src_tokenizer
    path = own_lexicon(tmp_path / "l", tokenizer, [(-1, 7), (9, 20), (9, 3), (10, 20), (11, 30)], [50, 40])
    shortlist = LexiconShortlist(path, tokenizer, tokenizer)
    assert shortlist.of([10, 9, 10]).tolist() == [3, 7, 9, 10, 20, 40, 50]
    assert shortlist.of([12]).tolist() == [7, 12, 40, 50]
    many = list(range(4, 4 + FREQUENT + 20))[::-1]
    shortlist = LexiconShortlist(own_lexicon(path, tokenizer, [(9, 3)], many), tokenizer, tokenizer)
    assert shortlist.of([9]).tolist() == sorted({3, 9, *many[:FREQUENT]})


@pytest.mark.sample(2)
def test_few_words_stay_few(random_translator: TranslationPipeline, tmp_path: Path) -> None:
    """Every token of a translation is one that its own line allows; another lexicon gives other text."""
    translator, lines = random_translator, digits(40)
    tokenizer = translator.tgt_tokenizer
    ids = {d: tokenizer.encode([d])[0][0] for d in "0123456789"}
    partner = {d: str((int(d) * 3 + 1) % 10) for d in ids}
    rows = sorted((ids[d], ids[partner[d]]) for d in ids)
    translator.shortlist = None
    free = [t.outputs[0].text for t in translator.stream(lines)]
    try:
        translator.shortlist = LexiconShortlist(
            own_lexicon(tmp_path / "l", tokenizer, rows, [ids["0"]]), tokenizer, tokenizer
        )
        for options in ({}, {"beam_size": 1}, {"sampling": True, "num_hypotheses": 2}):
            config = translator.configure(options)
            found = list(translator.stream(lines, config))
            for line, translation in zip(lines, found, strict=True):
                usable = {"0", *line, *(partner[d] for d in line.split())}
                for output in translation.outputs:
                    assert set(output.text) <= usable, (line, output.text)
            texts = [output.text for translation in found for output in translation.outputs]
            assert len(set(texts)) > 10 and texts != free
            for batching in (Batching(1), Batching(7)):
                again = translator.stream(lines, config, batching)
                assert [output.text for translation in again for output in translation.outputs] == texts
            places = list(range(len(lines)))
            if not config.sampling:
                random.Random(1).shuffle(places)
                shuffled = list(translator.stream([lines[i] for i in places], config))
                assert [t.outputs[0].text for t in shuffled] == [texts[i] for i in places]
    finally:
        translator.shortlist = None


def test_all_tokens_change_nothing(random_translator: TranslationPipeline, tmp_path: Path) -> None:
    translator, lines = random_translator, digits(80, 4)
    tokenizer = translator.tgt_tokenizer
    every = [(-1, id) for id in range(tokenizer.vocab_size)]
    for options in ({}, {"beam_size": 1}, {"sampling": True}):
        config = translator.configure(options)
        without = [t.outputs[0] for t in translator.stream(lines, config)]
        translator.shortlist = LexiconShortlist(own_lexicon(tmp_path / "l", tokenizer, every, []), tokenizer, tokenizer)
        try:
            found = [t.outputs[0] for t in translator.stream(lines, config)]
        finally:
            translator.shortlist = None
        assert [output.text for output in found] == [output.text for output in without]
        assert [o.score for o in found] == pytest.approx([o.score for o in without], abs=1e-4)


def test_a_prefix_may_hold_other_words(trained: Path, tokens: Path, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("9 9\nZ\n\n")
    options = {"prefixes": tmp_path / "prefixes", "shortlist": tokens}
    lines = stream(trained, ["1 2 3", "4 5", "6"], tmp_path, **options)
    assert lines[0].startswith("9 9") and lines[1].startswith("Z")


def test_the_lexicon_of_an_alignment_is_taken(trained: Path, tokens: Path, tmp_path: Path) -> None:
    lines = digits(20)
    short = stream(trained, lines, tmp_path, shortlist=tokens)
    assert len(short) == 20
    objects = [json.loads(line) for line in stream(trained, lines, tmp_path, shortlist=tokens, as_json=True)]
    assert [found["translations"][0]["text"] for found in objects] == short


def test_a_lexicon_of_something_else_is_refused(workshop: Any, trained: Path, tokens: Path, tmp_path: Path) -> None:
    text = tokens.read_text(encoding="utf-8")
    (tmp_path / "other.tsv").write_text(text.replace('"vocabularies":["', '"vocabularies":["' + "0" * 64 + '","', 1))
    tokenizer = load_translator([trained], device="cpu").src_tokenizer
    (tmp_path / "foreign.tsv").write_text(text.replace(tokenizer.fingerprint, "0" * 64))
    (tmp_path / "words.tsv").write_text('# {"units":"words","lines":1}\na\tb\t1\n')
    for name, said in (
        ("other", "is not a lexicon"),
        ("foreign", "other vocabularies"),
        ("words", "words, not tokens"),
    ):
        with pytest.raises(RunError, match=said) as caught:
            stream(trained, ["1"], tmp_path, shortlist=tmp_path / f"{name}.tsv")
        assert caught.value.exit_code == 4


# --- unknown words


@pytest.fixture(scope="module")
def worded(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recurrent model of whole words that knows few of the digits."""
    run: Path = tmp_path_factory.mktemp("worded") / "run"
    changes = {"vocabulary__kind": "word", "vocabulary__size": 8, "vocabulary__multiple_of": 1, "limits__max_steps": 6}
    workshop.train(workshop.configure("rnn", **changes), run)
    return run


LINES = ["1 2 3 4 5", "7 8", "", "9 Zürich 6 0", "5 5 5 5 5 5", "3"]
DICTIONARY = {"1": "one", "5": "five", "Zürich": "Zurich", "8": "eight"}


@pytest.fixture
def words(tmp_path: Path) -> Path:
    names = (["", *DICTIONARY], ["", *DICTIONARY.values(), "worse"])
    rows = [(i, i, 0.6) for i in range(1, len(names[0]))] + [(1, len(names[1]) - 1, 0.4)]
    columns = list(zip(*sorted(rows), strict=True))
    lines = lexicon_lines(Entries(*map(np.array, columns)), names)
    (tmp_path / "words.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path / "words.tsv"


def expected(plain: dict[str, Any], parts: list[str], dictionary: dict[str, str]) -> list[str]:
    """Work out the texts from the tokens and weights that --json shows without replacing."""
    found = []
    for output in plain["translations"]:
        texts = []
        for tokens, weights, part in zip(output["tokens"], output["attention"] or [], parts, strict=True):
            source = part.split(" ")
            row = []
            for token, looks in zip(tokens, weights, strict=True):
                word = source[int(np.argmax(looks[: len(source)]))]  # without the source's end
                row.append(dictionary.get(word, word) if token == "<unk>" else token.removeprefix("▁"))
            texts.append(" ".join(row))
        found.append(" ".join(texts))
    return found


# The vocabulary has four words and <unk>: with five different ones, one of them is unknown.
FIVE = {"min_length": 5, "no_repeat_ngram_size": 1}


@pytest.mark.parametrize("search", [{"beam_size": 1, **FIVE}, {"beam_size": 3, "num_hypotheses": 3, **FIVE}], ids=str)
@pytest.mark.parametrize("with_dictionary", [False, True])
def test_unknown_words_are_replaced(
    worded: Path, words: Path, tmp_path: Path, search: dict[str, Any], with_dictionary: bool
) -> None:
    plain = [json.loads(line) for line in stream(worded, LINES, tmp_path, search=search, as_json=True, attention=True)]
    options = {"search": search, "unknowns": True, "dictionary": words if with_dictionary else None}
    wanted = [expected(found, [line] if line else [], DICTIONARY if with_dictionary else {}) for found, line in
              zip(plain, LINES, strict=True)]  # fmt: skip
    flat = [text for texts in wanted for text in texts]
    assert stream(worded, LINES, tmp_path, **options) == flat
    assert "<unk>" not in " ".join(flat) and "<unk>" in json.dumps(plain)
    assert with_dictionary == ("five" in " ".join(flat))
    objects = [json.loads(line) for line in stream(worded, LINES, tmp_path, as_json=True, **options)]
    assert [[output["text"] for output in found["translations"]] for found in objects] == wanted
    assert set(objects[0]["translations"][0]) == {"text", "score", "log_prob"}


def test_unknown_words_of_a_line_in_parts(worded: Path, words: Path) -> None:
    translator = load_translator([worded], device="cpu")
    translator.segmenter.max_length = 4
    line = "1 2 5 8. Zürich 5 9, 4 3 2 8"
    parts = split_line(line, 4, lambda text: len(translator.src_tokenizer.encode([text])[0]))
    assert len(parts) == 3
    found = next(iter(translator.stream([line], record=True))).outputs[0]
    plain = {"translations": [{"tokens": found.tokens, "attention": found.attention}]}
    translator.replacer = UnknownReplacer(words, translator.src_tokenizer, translator.tgt_tokenizer)
    assert translator.translate([line]) == expected(plain, parts, DICTIONARY)


def test_lexicons_in_compiled_loops(worded: Path, trained: Path, tokens: Path, words: Path, tmp_path: Path) -> None:
    """Equal to torch; what loops do not support is noted once, or refused."""
    cases: list[tuple[dict[str, Any], int]] = [
        ({"shortlist": tokens}, 4),
        ({"shortlist": tokens, "search": {"beam_size": 3, "no_repeat_ngram_size": 2}}, 2),
        ({"search": {"coverage_penalty": 0.2, "beam_size": 2}}, 2),
    ]
    for options, window in cases:
        expected = stream(trained, LINES, tmp_path, engine="torch", **options)
        request = TranslateRequest([trained], tmp_path / "input.txt", device="cpu", engine="compiled", **options)
        request = replace(request, batching=Batching(window, window=window))
        assert [line for _, group in translate_stream(request, lambda text: None) for line in group] == expected
    options = {"unknowns": True, "dictionary": words}
    expected = stream(worded, LINES, tmp_path, engine="torch", **options)
    notes: list[str] = []
    request = TranslateRequest([worded], tmp_path / "input.txt", device="cpu", threads=1, **options)
    request = replace(request, batching=Batching(4, window=2))
    assert [line for _, group in translate_stream(request, notes.append) for line in group] == expected
    assert notes == ["compiled loops do not support a model of kind rnn; using torch, which is slower"]
    with pytest.raises(UsageError, match="compiled loops do not support a model of kind rnn") as caught:
        stream(worded, LINES, tmp_path, engine="compiled", **options)
    assert (caught.value.where, caught.value.help) == ("--engine", "use --engine auto")
    with pytest.raises(UsageError, match="int8 needs compiled loops, which do not support a model of kind rnn"):
        stream(worded, LINES, tmp_path, precision="int8", **options)


def test_what_cannot_replace_unknown_words(
    workshop: Any, worded: Path, trained: Path, tokens: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="this run has a vocabulary of kind char") as caught:
        stream(trained, ["1"], tmp_path, unknowns=True)
    assert "--set vocabulary.kind=word" in (caught.value.help or "")
    with pytest.raises(RunError, match="is a token lexicon, not a word lexicon"):
        stream(worded, ["1"], tmp_path, unknowns=True, dictionary=tokens)
    with pytest.raises(UsageError, match="a dictionary requires --replace-unknowns") as caught:
        stream(worded, ["1"], tmp_path, dictionary=tokens)
    assert "--replace-unknowns" in (caught.value.help or "")


ODD = ["", " ", "a", "a b", " a  b ", "É\u00a0x y", "\u3000 z", "ﬁ\u2009ne <unk>", "İ ß\tq", "e\u0301 x", "<s> ☃"]


@pytest.mark.parametrize("config", [{}, {"lowercase": True}, {"normalize": "nfkc"}, {"normalize": "nfc"}], ids=str)
@pytest.mark.parametrize("line", ODD)
def test_there_is_a_word_behind_each_token(config: dict[str, Any], line: str) -> None:
    """The seen forms are what the vocabulary encodes, one token each."""
    text = ["a b x y z fine É é q ne", "a b", line + " ☃"]
    tokenizer = train_vocabulary(
        text, VocabularyConfig(kind="word", size=64, min_frequency=1, symbols=("<2x>",), **config)
    )
    words, (ids,) = source_words(line, tokenizer), tokenizer.encode([line])
    assert len(words) == len(ids)
    for (surface, seen), id in zip(words, ids, strict=True):
        if id != UNK_ID:
            assert tokenizer.bytes_of(id).decode() == " " + seen
        assert surface in line or surface == seen


def test_the_word_itself_is_written_as_it_stands() -> None:
    tokenizer = train_vocabulary(["a b"] * 3, VocabularyConfig(kind="word", size=8, lowercase=True))
    unknowns = UnknownReplacer(None, tokenizer, tokenizer)
    a = tokenizer.encode(["a"])[0][0]
    weights = np.array([[0.1, 0.2, 0.7], [0.6, 0.1, 0.3], [0.4, 0.4, 0.2]], np.float32)
    assert unknowns.text([UNK_ID, a, UNK_ID], weights, "Zürich BERN") == "BERN a Zürich"
    translated = UnknownReplacer(None, tokenizer, tokenizer)
    translated.dictionary = {"bern": "Berne", "Zürich": "Zurich"}
    assert translated.text([UNK_ID, a, UNK_ID], weights, "Zürich BERN") == "Berne a Zurich"
    assert unknowns.text([UNK_ID], np.array([[0.9, 0.05, 0.05, 0.0]], np.float32), " x") == "x"
