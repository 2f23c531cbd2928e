"""From two files to a dictionary and links: what is counted, left out, kept in memory."""

from __future__ import annotations

import gzip
import random
import threading
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from attnkit.errors import DataError, UsageError
from attnkit.kernels import ibm1 as corpus_module
from attnkit.tasks.word_alignment import lexicon as module
from attnkit.tasks.word_alignment.lexicon import Aligner, AlignRequest, WordEncoder, as_pharaoh
from attnkit.tasks.word_alignment.symmetrize import METHODS
from attnkit.text.translation_lexicon import load_dictionary

SRC = ["das Haus", "das Buch", "", "ein Buch", "das kleine Haus", "  ", "ein Haus"]
TGT = ["the house", "the book", "", "a book", "the small house", "nothing", "a house"]


def files(folder: Path, src: Sequence[str] = SRC, tgt: Sequence[str] = TGT) -> tuple[Path, Path]:
    for name, lines in (("a", src), ("b", tgt)):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder / "a", folder / "b"


def learnt(request: AlignRequest) -> tuple[Aligner, str]:
    """Return an aligner that has learnt, and its dictionary."""
    aligner, book = Aligner(request), StringIO()
    aligner.learn(book)
    return aligner, book.getvalue()


@pytest.mark.parametrize("n_cpus", [1, 2])
def test_directions_at_once_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_cpus: int) -> None:
    """Each direction alone, both in turn, and both at once unless their pairs would exceed the limit of memory."""
    drawn = random.Random(4)
    sides = [[" ".join(drawn.choices("abcdefgh", k=drawn.randrange(1, 9))) for _ in range(300)] for _ in range(2)]
    paths = files(tmp_path, *sides)
    alone = [learnt(AlignRequest(*paths, method=method))[0] for method in ("forward", "reverse")]
    started: list[int] = []
    monkeypatch.setattr(module, "usable_cpus", lambda: n_cpus)

    def start(n: int, thread_name_prefix: str) -> ThreadPoolExecutor:
        started.append(n)
        return ThreadPoolExecutor(n, thread_name_prefix)

    monkeypatch.setattr(module, "ThreadPoolExecutor", start)
    for most, expected in ((1000, n_cpus - 1), (100, 0)):
        started.clear()
        both, book = learnt(AlignRequest(*paths, max_pairs=most))
        assert (len(started), list(both.report.perplexity)) == (expected, ["forward", "reverse"])
        assert both.forward.tolist() == alone[0].forward.tolist() and both.reverse.tolist() == alone[1].reverse.tolist()
        assert both.report.perplexity["reverse"] == alone[1].report.perplexity["reverse"] and book


def test_a_failure_ends_the_other_direction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cpus", lambda: 2)
    aligner = Aligner(AlignRequest(*files(tmp_path), iterations=1000))

    def fail(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "best_links", fail)
    ran: list[str] = []
    monkeypatch.setattr(aligner, "_progress", ran.append)
    with pytest.raises(KeyboardInterrupt):
        aligner.learn(None)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("attnkit align")]


def test_a_small_corpus(tmp_path: Path) -> None:
    aligner, book = learnt(AlignRequest(*files(tmp_path), iterations=20))
    found = [as_pharaoh(links) for links in aligner.links()]
    assert found == ["0-0 1-1", "0-0 1-1", "", "0-0 1-1", "0-0 1-1 2-2", "", "0-0 1-1"]
    report = aligner.report
    assert (report.pairs, report.blank, report.long, report.src_words, report.tgt_words) == (7, 2, 0, 11, 11)
    assert report.links == 11 and report.entries == book.count("\n") - 1
    for values in (report.perplexity["forward"], report.perplexity["reverse"]):
        assert len(values) == 20 and values == sorted(values, reverse=True)
    (tmp_path / "words.tsv").write_text(book, encoding="utf-8")
    words = {"das": "the", "Haus": "house", "Buch": "book", "ein": "a", "kleine": "small"}
    assert load_dictionary(tmp_path / "words.tsv") == words


def test_the_first_perplexity_is_the_number_of_words_that_occur(tmp_path: Path) -> None:
    """By hand: the, house, book are equally likely. The word without a name and a vocabulary's others are not there."""
    aligner = learnt(AlignRequest(*files(tmp_path, ["das Haus", "das Buch"], ["the house", "the book"])))[0]
    assert aligner.report.perplexity["forward"][0] == pytest.approx(3.0, rel=1e-12)
    assert aligner.report.perplexity["reverse"][0] == pytest.approx(3.0, rel=1e-12)


def test_the_dictionary_is_the_models_table(tmp_path: Path) -> None:
    """Every line is a probability of the table; --min-prob and --best leave out the least likely."""
    from attnkit.kernels.ibm1 import em_step, fastest, init_table

    paths = files(tmp_path)
    aligner, book = learnt(AlignRequest(*paths, iterations=3, min_prob=0.0))
    table = init_table(aligner.corpus)
    for _ in range(3):
        em_step(table, aligner.corpus, fastest())
    src, tgt = (units.names for units in aligner.units if isinstance(units, WordEncoder))
    rows = {}
    for key, prob in zip(table.keys.tolist(), table.probs.tolist(), strict=True):
        row, word = divmod(key, table.n_tgt)
        if prob > 0:
            rows[src[row - 1] if row else "", tgt[word]] = float(f"{prob:.6g}")
    lines = [line.split("\t") for line in book.splitlines()[1:]]
    assert {(left, right): float(prob) for left, right, prob in lines} == rows
    probs = [(left, float(prob)) for left, _, prob in lines]
    for (left, prob), (after, less) in pairwise(probs):
        assert left != after or prob >= less
    likely = [line.split("\t") for line in learnt(AlignRequest(*paths, iterations=3, min_prob=0.3))[1].splitlines()[1:]]
    assert likely == [line for line in lines if float(line[2]) >= 0.3] and 0 < len(likely) < len(lines)
    best = [
        line.split("\t") for line in learnt(AlignRequest(*paths, iterations=3, min_prob=0, best=1))[1].splitlines()[1:]
    ]
    assert [line[0] for line in best] == list(dict.fromkeys(left for left, _, _ in lines))
    assert all(line in lines for line in best)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_learns_what_it_needs(tmp_path: Path, method: Any) -> None:
    aligner = Aligner(AlignRequest(*files(tmp_path), method=method))
    aligner.learn(None)
    needed = {"forward": {"forward"}, "reverse": {"reverse"}}.get(method, {"forward", "reverse"})
    assert aligner.report.perplexity.keys() == needed
    assert len(list(aligner.links())) == len(SRC)


def test_links_point_from_source_to_target(tmp_path: Path) -> None:
    """Where b translates y: in the second pair, where they stand at 2 and 0, the source's place is the first number."""
    src, tgt = ["a b", "c c b", "a a a", "c"], ["x y", "y z", "x x", "z"]
    for method in ("forward", "reverse", "intersection"):
        aligner = Aligner(AlignRequest(*files(tmp_path, src, tgt), method=method, iterations=30))
        aligner.learn(None)
        second = list(aligner.links())[1]
        assert (2, 0) in second and (1, 1) in second and (0, 2) not in second


def test_packed_files_give_the_same(tmp_path: Path) -> None:
    plain = learnt(AlignRequest(*files(tmp_path)))
    for name in ("a", "b"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    packed = learnt(AlignRequest(tmp_path / "a.gz", tmp_path / "b.gz"))
    assert list(packed[0].links()) == list(plain[0].links()) and packed[1] == plain[1]


def test_long_lines_are_left_out(tmp_path: Path) -> None:
    src, tgt = [*SRC, "das " * 9, "das"], [*TGT, "the", "the " * 9]
    aligner, book = learnt(AlignRequest(*files(tmp_path, src, tgt), max_length=8))
    assert aligner.report.long == 2 and list(aligner.links())[-2:] == [[], []]
    assert book == learnt(AlignRequest(*files(tmp_path)))[1]


def test_what_cannot_be_aligned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has 7 lines and .* has 6") as caught:
        Aligner(AlignRequest(*files(tmp_path, SRC, TGT[:6])))
    assert "attnkit check" in (caught.value.help or "")
    for src, tgt, said in (([], [], "no lines"), (["a", ""], ["", "b"], "all 2 have a blank side")):
        with pytest.raises(DataError, match=said):
            Aligner(AlignRequest(*files(tmp_path, src, tgt)))
    for null_prob in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="--null-prob"):
            Aligner(AlignRequest(*files(tmp_path), null_prob=null_prob))
    with pytest.raises(UsageError, match="--tgt-vocab requires --vocab"):
        Aligner(AlignRequest(*files(tmp_path), tgt_vocab=tmp_path / "v"))
    with pytest.raises(UsageError, match="--run and --vocab cannot be combined"):
        Aligner(AlignRequest(*files(tmp_path), run=tmp_path, vocab=tmp_path / "v"))


def test_words_beyond_the_most_are_one_that_no_dictionary_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = WordEncoder(most=4)
    assert words.encode(["a b a", "c d", "d " + "x" * 2000, "b"]) == [[1, 2, 1], [3, 0], [0, 0], [2]]
    assert len(words) == 4 and words.names == ["", "a", "b", "c"]
    monkeypatch.setattr("attnkit.tasks.word_alignment.lexicon.WordEncoder.__init__.__defaults__", (4,))
    aligner, book = learnt(AlignRequest(*files(tmp_path)))
    assert {line.split("\t")[0] for line in book.splitlines()[1:]} == {"", "das", "Haus", "Buch"}
    assert {line.split("\t")[1] for line in book.splitlines()[1:]} == {"the", "house", "book"}
    assert sum(map(len, aligner.links())) > 5  # the nameless words are linked as others are


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the text, every pair of words new: the same peak but for 4 bytes per word and 16 a line."""
    monkeypatch.setattr(corpus_module, "CELLS", 1 << 13)
    rng = random.Random(1)
    lines = [[" ".join(f"w{rng.randrange(3000)}" for _ in range(15)) for _ in range(1600)] for _ in range(2)]

    def peak(n_lines: int) -> tuple[int, int]:
        paths = files(tmp_path, lines[0][:n_lines], lines[1][:n_lines])
        tracemalloc.start()
        try:
            aligner = Aligner(AlignRequest(*paths, max_pairs=1 << 14, method="forward", iterations=1))
            aligner.learn(None)
            return tracemalloc.get_traced_memory()[1], aligner.report.word_pairs
        finally:
            tracemalloc.stop()

    peak(200)
    small, large = peak(400), peak(1600)
    assert large[1] <= (1 << 14) + 3001
    text = 1200 * (2 * 15 * 4 + 2 * 15 * 4 + 64)  # the numbers, what their arrays hold in reserve, the lines
    assert large[0] <= 1.15 * small[0] + text, (small, large)
