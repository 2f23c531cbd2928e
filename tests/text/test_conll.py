"""Tagged words in columns: read, checked, changed from scheme to scheme, and written back line by line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from attnkit.errors import DataError
from attnkit.protocols import entities
from attnkit.text import conll
from attnkit.text.conll import (
    Scheme,
    TagSummary,
    convert,
    label_scheme,
    read_blocks,
    read_sentences,
    summarize_tags,
    tag_warnings,
)

FILE = """-DOCSTART- -X- O

EU NNP B-ORG
rejects VBZ O

Peter NNP B-PER
Blackburn NNP I-PER


-DOCSTART- -X- O
1996 CD O"""
# The same three entities, worked out by hand: PER over two words, PER over one that touches it, LOC alone.
SAME: dict[Scheme, str] = {
    "bio": "B-PER I-PER B-PER O B-LOC",
    "iob1": "I-PER I-PER B-PER O I-LOC",
    "bioes": "B-PER E-PER S-PER O S-LOC",
    "bilou": "B-PER L-PER U-PER O U-LOC",
}


def write(folder: Path, text: str) -> Path:
    path = folder / "a.conll"
    path.write_bytes(text.encode())
    return path


def test_sentences_and_what_stands_between_them(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    found = [(block.line, block.words, block.tags) for block in read_sentences(path)]
    assert found == [
        (3, ("EU", "rejects"), ("B-ORG", "O")),
        (6, ("Peter", "Blackburn"), ("B-PER", "I-PER")),
        (11, ("1996",), ("O",)),
    ]
    assert [line for block in read_blocks(path) for line in block.lines] == FILE.split("\n")


def test_every_line_comes_back(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    written = [line for block in read_blocks(path) for line in conll.write_tags(block, ["X"] * len(block.words))]
    assert written == [line + " X" if line and "DOC" not in line else line for line in FILE.split("\n")]


def test_tabs_divide_columns_where_there_are_any(tmp_path: Path) -> None:
    path = write(tmp_path, "New York\tB-LOC\n \t \n\u00a0\tO\r\nx \t O\n\t\n")
    blocks = list(read_blocks(path))
    assert [(block.words, block.tags) for block in blocks if block.words] == [
        (("New York",), ("B-LOC",)),
        (("\u00a0", "x"), ("O", "O")),
    ]
    assert sum(len(block.lines) for block in blocks) == 5
    assert conll.write_tags(blocks[0], ["O"]) == ["New York\tB-LOC\tO"]


def test_words_alone_are_read_where_no_tags_are_asked_for(tmp_path: Path) -> None:
    (block,) = read_sentences(write(tmp_path, "Hello\nworld\n"), tagged=False)
    assert block.words == ("Hello", "world") and block.tags == ()
    assert conll.write_tags(block, ["O", "B-X"]) == ["Hello O", "world B-X"]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a O\nb\n", 2, "this word has no tag"),
        ("text\tlabel\nit was not bad\tgood\nit was so dull\tbad\n", 2, "the first column holds texts, such as 'it"),
        ("a O\nb\t\n", 2, "this word has no tag"),
        ("a O\n\nb NN O\n", 3, "this line has 3 columns, the first line 2"),
        ("\tO\n", 1, "the word is missing"),
        (f"a\t{'x' * 300}\n", 1, "this tag has 300 characters"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DataError, match=said) as caught:
        list(read_sentences(path))
    assert caught.value.where == f"{path}:{line}" and caught.value.help


def test_a_file_without_blank_lines_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conll, "MAX_WORDS", 3)
    assert len(list(read_sentences(write(tmp_path, "a O\n" * 3)))) == 1
    assert sum(len(block.lines) for block in read_blocks(write(tmp_path, "\n" * 8))) == 8
    with pytest.raises(DataError, match="more than 3 words"):
        list(read_sentences(write(tmp_path, "a O\n" * 4)))


@pytest.mark.parametrize("source", SAME)
@pytest.mark.parametrize("target", SAME)
def test_schemes_are_changed_as_by_hand(tmp_path: Path, source: Scheme, target: Scheme) -> None:
    assert convert(SAME[source].split(), target) == SAME[target].split()
    path = write(tmp_path, "".join(f"w {tag}\n" for tag in SAME[source].split()))
    assert bool(summarize_tags([path]).n_errors[target]) == (source != target)


def test_neighbours_of_two_types_need_no_border_in_iob1() -> None:
    assert convert(["B-PER", "B-LOC", "B-LOC"], "iob1") == ["I-PER", "I-LOC", "B-LOC"]


@pytest.mark.parametrize("seed", range(20))
def test_any_tags_keep_their_entities_and_become_well_formed(seed: int) -> None:
    drawn = random.Random(seed)
    tags = drawn.choices(["O", "B-A", "I-A", "E-A", "S-A", "L-A", "U-A", "B-B", "I-B"], k=12)
    for scheme in SAME:
        changed = convert(tags, scheme)
        assert entities(changed) == entities(tags)
        assert convert(changed, scheme) == changed


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["B-PER I-PER O"], "bio"),
        (["I-PER I-PER O"], "iob1"),
        (["I-PER B-PER", "O I-LOC"], "iob1"),
        (["B-PER I-PER", "B-LOC O", "I-LOC O"], "bio"),  # one slip
        (["B-PER O", "I-LOC O"], "bio"),  # as many
        (["B-PER E-PER", "O E-LOC"], "bioes"),
        (["O S-LOC"], "bioes"),
        (["B-PER I-PER O", "B-PER O", "S-PER O"], "bio"),  # one slip
        (["U-PER O B-LOC L-LOC"], "bilou"),
        (["U-PER O B-LOC L-LOC", "O U-PER", "S-PER"], "bilou"),  # one slip
        (["O O"], "plain"),
        (["NNP VBZ", "I-"], "plain"),
        (["B-PER", "NN"], "bio"),  # half of them
        (["B-PER B-PER", "NN", "VB"], "plain"),  # fewer, though more often
        ([*["B-PER I-PER O"] * 1000, "0"], "bio"),
    ],
)
def test_schemes_are_told_apart(tmp_path: Path, sentences: list[str], scheme: str) -> None:
    text = "\n".join("".join(f"w {tag}\n" for tag in sentence.split()) for sentence in sentences)
    assert summarize_tags([write(tmp_path, text)]).scheme() == scheme


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        ("O B-x I-x", "bio"),
        ("O B-x I-x I-y", "iob1"),  # no y touches another
        ("O B-x I-x E-x S-x", "bioes"),
        ("O B-x I-x L-x U-x", "bilou"),
        ("0 B-x I-x O", "bio"),
        ("DT NN VB O", "plain"),
        ("O", "plain"),
    ],
)
def test_labels_tell_their_scheme(labels: str, scheme: str) -> None:
    assert label_scheme(labels.split()) == scheme


def test_tags_that_break_their_scheme_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a B-PER\nb O\n\nc O\nd I-PER\n\nI-LOC I-LOC\nI-LOC I-LOC\n\n0 S-LOC\n")
    errors = summarize_tags([path])
    assert errors.n_errors == {"bio": 3, "iob1": 2, "bioes": 4, "bilou": 5}
    assert tag_warnings("bio", errors) == [
        f"3 tags do not follow BIO and are interpreted as by conlleval; the first one: {path}:5: 'I-PER' as 'B-PER'"
    ]
    other = tmp_path / "other"
    other.write_text("a E-x\n")
    one, none = summarize_tags([other]), TagSummary()
    told = f"{other}:1: 'E-x' as 'B-x'"
    assert tag_warnings("bio", none, one) == [f"1 tag does not follow BIO and is interpreted as by conlleval: {told}"]
    assert tag_warnings("bio", none, one, errors) == [
        f"4 tags do not follow BIO and are interpreted as by conlleval; the first one: {told}"
    ]
    assert tag_warnings("bio", none) == []


def test_tags_that_name_no_entities_stay_and_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a I-PER\nb 0\n\nc X\nd 0\n")
    assert convert(["I-PER", "0", "B", "I-PER"], "bio") == ["B-PER", "0", "B", "B-PER"]
    found = summarize_tags([path])
    assert found.tags == {"I-PER": f"{path}:1", "0": f"{path}:2", "X": f"{path}:4"} and found.invalid_tags() == [
        "0",
        "X",
    ]
    with pytest.raises(DataError, match="the tag '0' is not a BIO entity tag") as caught:
        found.check_tags()
    assert caught.value.where == f"{path}:2" and "B-PER" in (caught.value.help or "")
    summarize_tags([write(tmp_path, "a I-PER\nb O\n")]).check_tags()


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u3000", "\u2028"])
def test_white_space_in_tags_is_refused(tmp_path: Path, space: str) -> None:
    path = write(tmp_path, f"a\tO\n\nYork\tB-big{space}city\n")
    with pytest.raises(DataError, match="contains white space") as caught:
        summarize_tags([path])
    assert caught.value.where == f"{path}:3"
