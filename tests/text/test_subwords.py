"""n-grams and their buckets: fastText's own numbers, a naive reference, and vectors made of them."""

from __future__ import annotations

import numpy as np
import pytest

from attnkit.text.word_vocabulary import Subwords, composed

# Printed by get_subwords of fasttext 0.9.3 from PyPI (train_unsupervised with minn=3, maxn=6, bucket=2000000, over a
# vocabulary that holds all words but "naïve"), the number of its words taken off; "a", the word itself left out.
FASTTEXT = {
    "where": (
        "<wh <whe <wher <where whe wher where where> her here here> ere ere> re>",
        "167652 989715 1526707 1071586 420941 312621 969176 121234 1473420 1540811 114991 1529033 1568469 867498",
    ),
    "häuser": (
        "<hä <häu <häus <häuse häu häus häuse häuser äus äuse äuser äuser> use user user> ser ser> er>",
        "506958 806241 1613398 1203785 1532871 568284 445755 62059 998834 448885 706821 1501153 1170932 501362 "
        "1556644 1112181 1981201 742840",
    ),
    "東京": ("<東京 <東京> 東京>", "473661 106169 163715"),
    "a": ("<a>", "1087600"),
    "😀x": ("<😀x <😀x> 😀x>", "1082798 653744 1799594"),
    "naïve": (
        "<na <naï <naïv <naïve naï naïv naïve naïve> aïv aïve aïve> ïve ïve> ve>",
        "1806890 1907692 878190 933201 1590546 1719404 832043 156687 356832 1223007 1505331 1711570 1788548 1088654",
    ),
}
# The same with minn=1, maxn=2, bucket=1000.
SHORT = {"ab": ("<a a ab b b>", "750 220 946 77 561"), "é": ("<é é é>", "627 777 781")}


def naive_ngrams(word: str, min_n: int = 3, max_n: int = 6) -> list[str]:
    """Return the n-grams of ``<word>`` by where they begin, then by length; a lone ``<`` or ``>`` is none."""
    text = f"<{word}>"
    spans = ((i, i + n) for i in range(len(text)) for n in range(min_n, max_n + 1))
    return [text[i:j] for i, j in spans if j <= len(text) and not (j == i + 1 and (i == 0 or j == len(text)))]


@pytest.mark.parametrize("word", FASTTEXT)
def test_ngrams_and_buckets_are_fasttexts(word: str) -> None:
    ngrams, buckets = FASTTEXT[word]
    assert naive_ngrams(word) == ngrams.split()
    assert Subwords().buckets(word).tolist() == [int(bucket) for bucket in buckets.split()]


@pytest.mark.parametrize("word", SHORT)
def test_single_characters_count_but_not_the_brackets_alone(word: str) -> None:
    ngrams, buckets = SHORT[word]
    assert naive_ngrams(word, 1, 2) == ngrams.split()
    assert Subwords(1, 2, 1000).buckets(word).tolist() == [int(bucket) for bucket in buckets.split()]


def naive_bucket(ngram: str, n_buckets: int) -> int:
    value = 2166136261
    for byte in ngram.encode():
        value = ((value ^ (byte | 0xFFFFFF00 if byte > 127 else byte)) * 16777619) % 2**32
    return value % n_buckets


def test_tables_hold_each_word_and_its_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnkit.text.word_vocabulary.BLOCK", 3)
    words, subwords = [*FASTTEXT, "x", "", "ǆ"], Subwords(2, 5, 777)
    starts, rows = subwords.tables(words)
    assert (starts.dtype, rows.dtype, starts[0]) == (np.int64, np.int32, 0)
    for v, word in enumerate(words):
        buckets = [len(words) + naive_bucket(ngram, 777) for ngram in naive_ngrams(word, 2, 5)]
        assert rows[starts[v] : starts[v + 1]].tolist() == [v, *buckets]


def test_without_ngrams_only_the_words_are_left() -> None:
    starts, rows = Subwords(3, 0, 10).tables(["ab", "c"])
    assert (starts.tolist(), rows.tolist()) == ([0, 1, 2], [0, 1])
    assert Subwords(3, 0, 10).vector("ab", np.ones((10, 2), np.float32)) is None
    assert Subwords().tables([])[1].tolist() == []


def test_vectors_are_means_of_rows() -> None:
    words, subwords = ["where", "here", "東京"], Subwords(3, 4, 50)
    inputs = np.random.default_rng(1).normal(size=(53, 7)).astype(np.float32)
    starts, rows = subwords.tables(words)
    for v, vector in enumerate(composed(inputs, starts, rows)):
        np.testing.assert_allclose(vector, inputs[rows[starts[v] : starts[v + 1]]].mean(axis=0), rtol=1e-5)
    unseen = subwords.vector("there", inputs[3:])
    rows_of_it = [3 + naive_bucket(ngram, 50) for ngram in naive_ngrams("there", 3, 4)]
    assert unseen is not None
    np.testing.assert_allclose(unseen, inputs[rows_of_it].mean(axis=0), rtol=1e-5)
    assert subwords.vector("", inputs[3:]) is None  # "<>" is shorter than three characters


@pytest.mark.parametrize("numbers", [(0, 3, 10), (4, 3, 10), (3, -1, 10), (3, 6, 0)])
def test_meaningless_numbers_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="invalid min_n="):
        Subwords(*numbers)


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="too many rows"):
        Subwords(3, 6, 2**31 - 1).tables(["a"])
