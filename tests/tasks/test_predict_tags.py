"""A tag for each word, by a fine-tuned tagger: against the model itself, one sentence at a time."""

from __future__ import annotations

import gzip
import json
import lzma
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from finetuned import WORDS, opened, predicted, predicting, random_run, write

from attnkit.engine.predict import PredictRequest, choose_format
from attnkit.errors import DataError, UsageError
from attnkit.metrics.labels import span_scores
from attnkit.text.conll import convert
from attnkit.text.offsets import encode_words

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_run(tmp_path_factory.mktemp("tagger") / "run", "token-classification", TAGS)


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    drawn = random.Random(2)
    return [drawn.choices(WORDS, k=drawn.randint(1, 7)) for _ in range(40)]


def alone(run: Path, words: list[str]) -> list[dict[str, float]]:
    """Return the probabilities of each word's tags, of a row laid out by hand; the sentence fits into one."""
    model, vocabulary = opened(run, "token-classification")
    encoded = encode_words(vocabulary, [words])[0]
    row = [1, *encoded.ids.tolist(), 2]
    assert len(row) <= 24
    with torch.no_grad():
        logits = model(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.bool))
    shares = logits[0].softmax(-1)[1 + torch.from_numpy(encoded.firsts)].tolist()
    return [dict(zip(TAGS, line, strict=True)) for line in shares]


def test_each_word_gets_what_it_gets_in_its_sentence_alone(
    run: Path, sentences: list[list[str]], tmp_path: Path
) -> None:
    path = write(tmp_path / "words.txt", *map(" ".join, sentences))
    expected = [alone(run, words) for words in sentences]
    best = [[max(row, key=row.__getitem__) for row in rows] for rows in expected]
    assert len({tag for tags in best for tag in tags}) > 2, "the test needs a model that tells words apart"
    for tokens in (1, 60, 16384):
        assert predicted(run, path, batch_tokens=tokens) == [" ".join(tags) for tags in best]
        found = [json.loads(line) for line in predicted(run, path, batch_tokens=tokens, as_json=True, all_labels=True)]
        for one, words, rows in zip(found, sentences, expected, strict=True):
            assert one["words"] == words
            assert one["all"] == [pytest.approx(row, abs=1.5e-6) for row in rows]
            assert one["probabilities"] == [pytest.approx(max(row.values()), abs=1.5e-6) for row in rows]
    backwards = write(tmp_path / "backwards.txt", *map(" ".join, reversed(sentences)))
    assert predicted(run, backwards) == [" ".join(tags) for tags in reversed(best)]


def test_every_word_of_long_and_odd_lines_gets_a_tag(run: Path, tmp_path: Path) -> None:
    """A sentence may be longer than a row; of a word the vocabulary may make nothing."""
    lines = ["", "  ", " ".join(WORDS * 20), "\u200b fox \ufeff", "日本語 😀\tfox", "fox"]
    found = predicted(run, write(tmp_path / "words.txt", *lines))
    assert [len(line.split()) for line in found] == [len(line.split()) for line in lines]
    assert {tag for line in found for tag in line.split()} <= set(TAGS)


def test_columns_get_one_more(run: Path, tmp_path: Path) -> None:
    """N lines in, N lines out, and the words as they were."""
    lines = ["-DOCSTART- O", "", "ada B-PER", "lives O", "", "", "london B-LOC"]
    path = write(tmp_path / "a.conll", *lines)
    tags = [
        " ".join(max(row, key=row.__getitem__) for row in alone(run, words)) for words in (["ada", "lives"], ["london"])
    ]
    found = predicted(run, path, gold=True)
    assert [line.rpartition(" ")[0] if line in found[2:4] + found[6:] else line for line in found] == lines
    assert [found[2].split()[2] + " " + found[3].split()[2], found[6].split()[2]] == tags
    tabs = write(tmp_path / "words.conll", "ada", "lives", "", "london")
    assert [line.split(" ")[-1] for line in predicted(run, tabs, format="conll") if line] == " ".join(tags).split()
    asked = predicted(run, path, gold=True, as_json=True)
    assert [json.loads(line)["expected"] for line in asked] == [["B-PER", "O"], ["B-LOC"]]


def test_scores_are_those_of_the_entities(run: Path, sentences: list[list[str]], tmp_path: Path) -> None:
    """Whichever scheme the expected tags are written in."""
    drawn = random.Random(5)
    gold = [[drawn.choice(["O", "B-PER", "B-LOC"]) for _ in words] for words in sentences]
    found = [line.split() for line in predicted(run, write(tmp_path / "words.txt", *map(" ".join, sentences)))]
    expected = span_scores(found, gold)
    singles = [[tag.replace("B-", "S-") for tag in tags] for tags in gold]
    for given in (gold, singles):
        rows = zip(sentences, given, strict=True)
        text = [line for words, tags in rows for line in (*map(" ".join, zip(words, tags, strict=True)), "")]
        asked = predicting(run, write(tmp_path / "gold.conll", *text), gold=True)
        assert sum(len(lines) for lines in asked) == len(text)
        totals = asked.totals()
        assert totals.plain["f1"] == expected.all.f1 and totals.plain["accuracy"] == pytest.approx(expected.accuracy)
        assert totals.plain["types"]["LOC"]["recall"] == expected.by_type["LOC"].recall
        assert totals.plain["sentences"] == 40 and totals.plain["words"] == sum(map(len, sentences))
        assert [row[0] for row in totals.rows] == ["", "entities", "LOC", "PER"]
        assert totals.confusion is not None and totals.confusion.labels == tuple(TAGS)
        assert asked.warnings() == []


def test_expected_tags_may_be_in_bilou(run: Path, sentences: list[list[str]], tmp_path: Path) -> None:
    found = [line.split() for line in predicted(run, write(tmp_path / "words.txt", *map(" ".join, sentences)))]
    same = [convert(tags, "bilou") for tags in found]
    assert {"U", "L"} & {tag[0] for tags in same for tag in tags}
    rows = zip(sentences, same, strict=True)
    text = [line for words, tags in rows for line in (*map(" ".join, zip(words, tags, strict=True)), "")]
    asked = predicting(run, write(tmp_path / "gold.conll", *text), gold=True)
    assert sum(map(len, asked)) == len(text)
    assert asked.totals().plain["f1"] == 100 and asked.warnings() == []


def test_an_expected_tag_that_names_no_entity_is_told(run: Path, tmp_path: Path) -> None:
    asked = predicting(run, write(tmp_path / "odd.conll", "ada U-PER", "lives 0", "paris O"), gold=True, as_json=True)
    (line,) = [line for lines in asked for line in lines]
    assert json.loads(line)["expected"] == ["B-PER", "0", "O"]
    assert len(asked.warnings()) == 1 and "'0' (1 gold labels" in asked.warnings()[0]


@pytest.mark.parametrize("name", ["a.conll", "a.bio", "a.IOB", "a.iob2", "a.bioes", "a.conll.gz", "a.b.bilou.xz"])
def test_names_of_files_tell_columns(run: Path, tmp_path: Path, name: str) -> None:
    lines = ["ada B-PER", "lives O", "", "london B-LOC"]
    pack: Callable[[bytes], bytes] = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
    (tmp_path / name).write_bytes(pack("".join(line + "\n" for line in lines).encode()))
    told: list[str] = []
    found = [line for group in predicting(run, tmp_path / name, told=told) for line in group]
    assert found == predicted(run, tmp_path / name, gold=True) and not told
    assert [re.sub(r" (O|[BI]-(PER|LOC))$", "", line) for line in found] == lines


@pytest.mark.parametrize("name", ["a.txt", "a.conllu", "conll", "-", "a.conll.txt"])
def test_other_files_are_lines_of_words(name: str) -> None:
    assert choose_format(PredictRequest(Path("run"), []), "token-classification", Path(name)) == "lines"
    assert choose_format(PredictRequest(Path("run"), [], gold=True), "token-classification", Path(name)) == "conll"
    assert (
        choose_format(PredictRequest(Path("run"), [], format="lines"), "token-classification", Path("a.conll"))
        == "lines"
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["ada lives", "in\tlondon", "a\tb"], "words.txt:2 contains a tab but is read as a sentence; for columns use"),
        (["ada B-PER", "lives O", "", "fox"], "words.txt end in a tag, e.g. 'ada B-PER', but are read as sentences"),
        (["ada NNP x B-PER", "lives VBZ x O"], "words.txt end in a tag, e.g. 'ada NNP x B-PER'"),
        (["ada B-PER", "lives here", "", "fox", "group O"], None),  # not most
        (["blood group O", "group O"], None),  # not of so many columns each
        (["blood group O"], None),
        (["O", "O"], None),
        (["ada lives", "in london"], None),
    ],
)
def test_columns_that_are_read_as_sentences_are_told_once(
    run: Path, tmp_path: Path, lines: list[str], said: str | None
) -> None:
    told: list[str] = []
    asked = predicting(run, write(tmp_path / "words.txt", *lines), told=told)
    assert [len(line.split()) for group in asked for line in group] == [len(line.split()) for line in lines]
    assert len(told) == (said is not None) and all(said in text for text in told if said), told


def test_a_tab_far_down_is_told_with_its_line(run: Path, tmp_path: Path) -> None:
    told: list[str] = []
    asked = predicting(run, write(tmp_path / "words.txt", *["fox"] * 1500, "the\tfox"), told=told)
    assert sum(map(len, asked)) == 1501
    assert len(told) == 1 and told[0].startswith(f"{tmp_path / 'words.txt'}:1501 contains a tab")


def test_entities_are_told_with_their_words(run: Path, tmp_path: Path) -> None:
    (line,) = predicted(run, write(tmp_path / "words.txt", " ".join(WORDS)), as_json=True)
    found = json.loads(line)
    assert found["entities"], "the test needs a model that finds some"
    for entity in found["entities"]:
        words = WORDS[entity["begin"] : entity["end"]]
        assert entity["text"] == " ".join(words)
        assert {tag.split("-")[1] for tag in found["tags"][entity["begin"] : entity["end"]]} == {entity["type"]}


def test_what_cannot_be_meant_is_refused(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "ada B-PER x", "lives O")
    with pytest.raises(DataError, match="2 columns, the first line 3"):
        predicted(run, path, gold=True)
    with pytest.raises(UsageError, match="--all requires --json"):
        predicting(run, path, all_labels=True)
