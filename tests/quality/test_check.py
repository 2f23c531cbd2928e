"""Everything `check` looks for is found where it was put, and nothing else."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from attnkit.cli.main import main
from attnkit.errors import DataError, UsageError
from attnkit.quality.check import MIN_OCCURRENCES, check_pair
from attnkit.quality.doctor import examine_pair
from attnkit.quality.findings import FINDINGS, CheckReport, inflect, shorten
from attnkit.quality.overlap import MIN_N_GRAMS, MIN_SHARED, N_GRAM, find_copies, find_seen
from attnkit.quality.pair_filters import DuplicateFinder, PairDrops, clean_pairs
from attnkit.text.config import CheckConfig, VocabularyConfig
from attnkit.text.vocabulary import train_vocabulary

N = 60
SRC = [f"the dog number {i} runs through the garden" for i in range(N)]
TGT = [f"der Hund Nummer {i} rennt durch den Garten" for i in range(N)]


def write(folder: Path, src: list[str] | bytes, tgt: list[str] | bytes, name: str = "a") -> tuple[Path, Path]:
    paths = folder / f"{name}.src", folder / f"{name}.tgt"
    for path, text in zip(paths, (src, tgt), strict=True):
        path.write_bytes(text if isinstance(text, bytes) else "".join(line + "\n" for line in text).encode())
    return paths


def summary(report: CheckReport) -> dict[tuple[str, str], tuple[int, int | None]]:
    return {(found.name, found.side): (found.count, found.first_line) for found in report.findings}


def changed(lines: list[str], **at: str) -> list[str]:
    return [at.get(f"l{number}", line) for number, line in enumerate(lines, 1)]


def test_clean_files_have_no_findings(tmp_path: Path) -> None:
    report = check_pair(*write(tmp_path, SRC, TGT))
    assert report.findings == [] and report.trainable
    assert (report.n_src, report.n_tgt, report.n_src_words, report.n_tgt_words) == (N, N, 8 * N, 8 * N)


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        ({"l3": "", "l9": " "}, {"l3": "\t", "l9": ""}, {("blank", "pair"): (2, 3)}),
        ({"l3": "", "l9": ""}, {"l3": "", "l9": ""}, {("blank", "pair"): (2, 3)}),
        ({"l4": "\u3000"}, {}, {("blank_source", "pair"): (1, 4)}),
        ({}, {"l4": "\u200b\u00ad"}, {("blank_target", "pair"): (1, 4)}),
        ({}, {"l5": ""}, {("blank_target", "pair"): (1, 5)}),
        ({}, {"l6": "ja nein vielleicht doch " * 3 + "so " + "x" * 500}, {("odd_ratio", "pair"): (1, 6)}),
        ({"l7": "x" * 2001}, {"l7": "x" * 1800}, {("long", "source"): (1, 7)}),
        ({"l9": SRC[1], "l8": SRC[1]}, {"l9": TGT[1], "l8": TGT[1]}, {("duplicate", "pair"): (2, 8)}),
        ({"l9": SRC[1]}, {}, {}),
        (
            {"l2": "a\u2028b"},
            {"l2": "a\x85b", "l4": "c\x0bd"},
            {("separator", "source"): (1, 2), ("separator", "target"): (2, 2)},
        ),
        (
            {"l2": "a \r b"},
            {"l3": TGT[2] + "\r"},
            {("inner_return", "source"): (1, 2), ("carriage_return", "target"): (1, 3)},
        ),
        (
            {"l1": "\ufeff" + SRC[0]},
            {"l3": "\ufeff" + TGT[2]},
            {("byte_order_mark", "source"): (1, 1), ("inner_mark", "target"): (1, 3)},
        ),
        ({"l2": "a\ufffdb"}, {}, {("replacement", "source"): (1, 2)}),
        ({"l2": "a\0b"}, {"l2": "\x1b[31m"}, {("control", "source"): (1, 2), ("control", "target"): (1, 2)}),
        ({"l2": "50\u00a0% of\u200b it"}, {}, {}),
        ({"l3": SRC[2] + " no no no no"}, {}, {("repeated", "source"): (1, 3)}),
        ({"l3": SRC[2] + " no no no"}, {"l4": "0 0 0 0 0 0 " + TGT[3]}, {}),
        ({}, {"l4": "私は犬が好き好き好き好き好きです"}, {("repeated", "target"): (1, 4)}),
        ({}, {"l4": "彼は笑った。ははははははははは"}, {}),
    ],
)
def test_each_oddity_is_found_where_it_is(
    tmp_path: Path, src: dict[str, str], tgt: dict[str, str], expected: dict[tuple[str, str], tuple[int, int]]
) -> None:
    report = check_pair(*write(tmp_path, changed(SRC, **src), changed(TGT, **tgt)))
    assert summary(report) == expected
    assert report.trainable


def test_undecodable_lines_are_counted_and_fatal(tmp_path: Path) -> None:
    raw = "".join(line + "\n" for line in SRC).encode().replace(b"dog number 6 ", b"d\xf6g ").replace(b"r 8 ", b"\xff")
    report = check_pair(*write(tmp_path, raw, TGT))
    assert summary(report) == {("undecodable", "source"): (2, 7)}
    assert not report.trainable
    assert report.n_src == N


def test_missing_lines_are_fatal_and_placed(tmp_path: Path) -> None:
    src = [f"{'dog ' * (i * 7 % 11 + 1)}{i}." for i in range(N)]
    tgt = [f"{'Hund ' * (i * 7 % 11 + 1)}{i}." for i in range(N)]
    report = check_pair(*write(tmp_path, src, tgt[:30] + tgt[31:]))
    assert summary(report)["mismatch", "pair"] == (1, 31)
    assert not report.trainable
    assert (report.n_src, report.n_tgt) == (N, N - 1)


def test_empty_files_are_fatal(tmp_path: Path) -> None:
    report = check_pair(*write(tmp_path, [], TGT))
    assert summary(report) == {("empty", "source"): (1, None)}
    assert (report.n_src, report.n_tgt) == (0, N)
    assert not check_pair(*write(tmp_path, [], [])).trainable


def test_the_ratio_is_judged_by_what_is_usual(tmp_path: Path) -> None:
    """Summaries, where every source is 20 times as long as its target, are not outliers of their corpus."""
    words = " ".join(f"w{number} x{number}" for number in range(100))
    longer = [f"{line} {words}" for line in SRC]
    assert summary(check_pair(*write(tmp_path, longer, TGT))) == {}
    assert summary(check_pair(*write(tmp_path, changed(longer, l5="dog"), TGT))) == {("odd_ratio", "pair"): (1, 5)}
    assert summary(check_pair(*write(tmp_path, changed(longer, l5="dog"), TGT), CheckConfig(max_ratio=None))) == {}


def test_overlap_with_training_text(tmp_path: Path) -> None:
    here = write(tmp_path, SRC, TGT)
    others = write(tmp_path, [SRC[7], "other", SRC[3], SRC[3]], [TGT[7], "andere", "something else", "more"], "train")
    found = summary(check_pair(*here, others=others))
    assert found == {("source_overlap", "source"): (2, 4), ("pair_overlap", "pair"): (1, 8)}
    assert summary(check_pair(*here, others=(others[0], None))) == {("source_overlap", "source"): (2, 4)}
    with pytest.raises(UsageError, match="no such file"):
        check_pair(*here, others=(tmp_path / "none", None))


def test_damaged_training_text_costs_no_report(tmp_path: Path) -> None:
    """A bad byte in line 4 of its source, a line missing at the end of its target."""
    here = write(tmp_path, SRC, TGT)
    src = "".join(line + "\n" for line in SRC[:10]).encode().replace(b"number 3 ", b"number \xff ")
    found = summary(check_pair(*here, others=write(tmp_path, src, TGT[:9], "train")))
    assert found == {("source_overlap", "source"): (9, 1), ("pair_overlap", "pair"): (8, 1)}


def test_files_of_which_nothing_is_left_cannot_be_trained_on(tmp_path: Path) -> None:
    report = check_pair(*write(tmp_path, ["", "a", "\t"], ["b", " ", ""]))
    assert summary(report)["nothing_left", "pair"] == (3, None)
    assert not report.trainable
    report = check_pair(*write(tmp_path, ["", "a", "\t"], ["b", "b", ""]))
    assert ("nothing_left", "pair") not in summary(report) and report.trainable


def test_tokens_are_counted_with_a_vocabulary(tmp_path: Path) -> None:
    words = train_vocabulary(SRC, VocabularyConfig(kind="word"))
    report = check_pair(*write(tmp_path, SRC, TGT), CheckConfig(max_length=7), vocabularies=(words, words))
    assert report.src_unknown_rate == pytest.approx(1 / 8)  # the numbers
    assert report.tgt_unknown_rate == 1
    assert summary(report) == {("long", "source"): (N, 1), ("long", "target"): (N, 1)}


def test_line_numbers_hold_beyond_the_first_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnkit.quality.check.BATCH", 7)
    words = train_vocabulary(SRC, VocabularyConfig(kind="word"))
    src = changed(SRC, l40="", l50=" ".join(SRC[:40]))
    found = summary(
        check_pair(*write(tmp_path, src, changed(TGT, l50=" ".join(TGT[:40]))), vocabularies=(words, words))
    )
    assert found == {("blank_source", "pair"): (1, 40), ("long", "source"): (1, 50), ("long", "target"): (1, 50)}


def test_standard_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="standard input can be read only once"):
        check_pair(Path("-"), tmp_path)


def test_repeats_against_a_dictionary() -> None:
    items = ["b", "a", "b", "c", "a", "a", "d"]
    seen = DuplicateFinder()
    for item in items:
        seen.add(item)
    assert seen.repeats().tolist() == [2, 4, 5]
    assert seen.overlap(["x", "c", "a", "c"]).tolist() == [1, 3, 4, 5]
    assert not any(map(len, (seen.overlap(["x"]), DuplicateFinder().repeats(), DuplicateFinder().overlap(items))))


def test_overlap_is_found_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnkit.quality.pair_filters._BATCH", 2)
    seen = DuplicateFinder()
    for item in ("b", "a", "b"):
        seen.add(item)
    assert seen.overlap(["x", "a", "y", "a", "a"]).tolist() == [1]
    assert seen.overlap(iter(["x", "y", "b"])).tolist() == [0, 2]


def test_sources_alone_are_remembered_for_overlap_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[DuplicateFinder] = []

    class Counted(DuplicateFinder):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr("attnkit.quality.check.DuplicateFinder", Counted)
    here = write(tmp_path, SRC, TGT)
    check_pair(*here)
    assert len(made) == 4
    check_pair(*here, others=here)
    assert len(made) == 9


def test_kept_pairs_and_drops_are_all_pairs(tmp_path: Path) -> None:
    src = changed(SRC, l1="", l2="  ", l9="x")
    tgt = changed(TGT, l2="", l3="\t", l9="ja " * 200)
    drops = PairDrops()
    kept = list(clean_pairs(*write(tmp_path, src, tgt), drops))
    assert drops == PairDrops(blank=1, blank_source=1, blank_target=1, odd_ratio=1)
    assert [line for line, _ in kept] == [line for line in range(N) if line not in (0, 1, 2, 8)]
    assert all(pair == (src[line], tgt[line]) for line, pair in kept)


def test_training_text_must_be_whole(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has 60 lines and .* has 59"):
        list(clean_pairs(*write(tmp_path, SRC, TGT[:-1]), PairDrops()))
    with pytest.raises(DataError, match="not UTF-8"):
        list(clean_pairs(*write(tmp_path, b"\xff\n", ["a"]), PairDrops()))


def test_samples_are_short_and_printable() -> None:
    assert shorten("a\u2028b\x1b[0m") == "a<U+2028>b<U+001B>[0m"
    assert [shorten("x" * n, width=20) for n in (19, 20, 21)] == ["x" * 19, "x" * 20, "x" * 19 + "…"]
    assert shorten("日" * 10, width=20) == "日" * 10 and shorten("日" * 10 + "x", width=20) == "日" * 9 + "…"
    for line in ("x" * 500, "\0" * 500, "日" * 500):
        assert len(shorten(line, width=20)) <= 20
        assert shorten(line, width=20).endswith("…")
    assert "\ufffd" in shorten("x" * 500 + "\ufffd" + "y" * 500, at=500, width=30)


LINES = [
    "The old gardener of the northern village has never seen the yellow bicycle behind our house.",
    "Seven children were waiting for the last train to the coast when the rain began to fall.",
    "Nobody at the meeting remembered who had first proposed to close the small library.",
]


def test_near_overlap_is_found_in_both_directions(tmp_path: Path) -> None:
    near = [
        LINES[0].replace("yellow", "red"),
        f"They said: {LINES[1]}",
        "Nobody at the meeting knew the small library.",
    ]
    corpus = write(tmp_path, [*SRC, *near], [*TGT, "eins", "zwei", "drei"], "corpus")
    test = write(tmp_path, LINES, ["erste", "zweite", "dritte"], "test")
    found = summary(check_pair(*test, others=corpus))
    assert found == {("near_overlap", "source"): (2, 1)}
    found = summary(check_pair(*corpus, others=test, others_name="validation"))
    assert found == {("near_overlap", "source"): (2, N + 1)}


def test_overlap_equals_a_search_of_all_pairs() -> None:
    draw = random.Random(3)
    words = [f"{a}{b}" for a in ("ka", "to", "mir", "sel", "un") for b in ("da", "po", "len", "gur", "is")]
    test = [" ".join(draw.choices(words, k=12)) for _ in range(60)]
    training = [" ".join(draw.choices(words, k=12)) for _ in range(300)]
    for number, line in enumerate(test):
        parts = line.split()
        for _ in range(number % 6):
            parts[draw.randrange(12)] = draw.choice(words)
        training.append(" ".join(parts))

    def grams(line: str) -> set[bytes]:
        text = line.replace(" ", "").encode()
        return {text[i : i + N_GRAM] for i in range(len(text) - N_GRAM + 1)}

    seen = [
        number
        for number, line in enumerate(test)
        if any(len(grams(line) & grams(other)) >= MIN_SHARED * len(grams(line)) for other in training)
    ]
    assert 5 < len(seen) < 55 and all(len(grams(line)) >= MIN_N_GRAMS for line in test)
    assert find_seen(test, training).tolist() == seen
    assert find_copies(test, []).tolist() == find_seen([], training).tolist() == []


def test_boilerplate_is_a_line_that_occurs_twenty_times(tmp_path: Path) -> None:
    again = {f"l{number}": "All rights of this page are reserved." for number in range(3, 3 + MIN_OCCURRENCES)}
    found = summary(check_pair(*write(tmp_path, changed(SRC, **again), TGT)))
    assert found == {("boilerplate", "source"): (MIN_OCCURRENCES, 3)}
    del again["l3"]
    assert summary(check_pair(*write(tmp_path, changed(SRC, **again), TGT))) == {}
    short = dict.fromkeys(again, "yes") | {"l3": "yes"}
    assert summary(check_pair(*write(tmp_path, changed(SRC, **short), TGT))) == {}


def test_words_fit_the_count() -> None:
    assert inflect("[pair that repeats|pairs that repeat] a [line|lines]", 1) == "pair that repeats a line"
    assert inflect("[pair that repeats|pairs that repeat] a [line|lines]", 2) == "pairs that repeat a lines"
    for text, _ in FINDINGS.values():
        assert "|" not in inflect(text, 1) and "|" not in inflect(text, 2)


# -- the commands


class Called(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def attnkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["attnkit", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Called(ended.value.code, *capsys.readouterr())

    return run


def test_the_check_command(tmp_path: Path, attnkit) -> None:
    write(tmp_path, changed(SRC, l4=""), TGT)
    ended = attnkit("check", "a.src", "a.tgt")
    assert (ended.code, ended.err) == (0, "")
    assert "-         1  pair with a blank source" in ended.out
    assert "Training drops 1 of 60 pairs" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    assert attnkit("check", "a.src", "a.tgt", "--strict").code == 3
    write(tmp_path, SRC, TGT)
    ended = attnkit("check", "a.src", "a.tgt", "--strict")
    assert ended.code == 0 and "60 pairs are few to learn from." in ended.out.replace("\n", " ")
    assert ended.out.endswith("No other problems were found.\n")
    refused = attnkit("check", "a.src", "a.tgt", "--tgt-lang", "germann")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "error: unknown language code 'germann'\n  at --tgt-lang\nhelp: did you mean de?\n"
    write(tmp_path, SRC, TGT[:-1])
    ended = attnkit("check", "a.src", "a.tgt", "--json")
    assert ended.code == 3
    assert json.loads(ended.out)["trainable"] is False


def test_the_vocab_command(tmp_path: Path, attnkit) -> None:
    write(tmp_path, SRC, TGT)
    ended = attnkit("vocab", "a.src", "a.tgt", "-o", "v.json", "--size", "320", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["vocab_size"] == 320
    assert attnkit("check", "a.src", "a.tgt", "--vocab", "v.json").code == 0
    refused = attnkit("vocab", "a.sra", "-o", "v.json")
    assert refused == (2, "", "error: no such file: a.sra\nhelp: did you mean a.src?\n")
    assert attnkit("vocab", "a.src", "-o", "a.src").code == 2
    assert attnkit("vocab", "a.src", "-o", "none/v.json").code == 2
    assert attnkit("vocab", "a.src", "-o", str(tmp_path / "a.src")).code == 2, "the same file by another path"
    (tmp_path / "link").symlink_to("a.src")
    assert attnkit("vocab", "a.src", "-o", "link").code == 2 and (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.src").read_text().startswith("the dog")
    assert "tokens per word" in attnkit("vocab", "a.src", "-o", "v.json", "--kind", "word").out


def shards(folder: Path, sides: tuple[list[list[str]], list[list[str]]]) -> tuple[Path, Path]:
    for side, files in zip(("src", "tgt"), sides, strict=True):
        (folder / side).mkdir(parents=True)
        for number, lines in enumerate(files):
            (folder / side / f"part-{number}").write_text("".join(f"{line}\n" for line in lines))
    return folder / "src", folder / "tgt"


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [((20, 40, 60), None), ((20, 35, 60), (2, 36)), ((0, 40, 60), (2, 1)), ((20, 60, 60), (2, 41)), ((30, 60), None)],
)
def test_shards_of_unequal_lengths_are_found(
    cuts: tuple[int, ...], expected: tuple[int, int] | None, tmp_path: Path
) -> None:
    """The source is cut after 20 and 40 lines; both sides have 60 in all. Shards of other numbers are not compared."""
    pair = shards(
        tmp_path / "shards",
        ([SRC[:20], SRC[20:40], SRC[40:]], [TGT[begin:end] for begin, end in zip((0, *cuts), cuts, strict=False)]),
    )
    report = check_pair(*pair)
    found = summary(report)
    assert found == ({} if expected is None else {("unequal_shards", "pair"): expected}) and report.trainable
    if expected is not None:
        assert examine_pair(*pair).verdict.startswith(
            f"2 shards have other numbers of lines on the two sides: from line {expected[1]}"
        )
