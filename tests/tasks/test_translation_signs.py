"""Signs that a translation went wrong are found where they are, and only there."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from attnkit.cli.main import main
from attnkit.protocols import UNK_ID
from attnkit.quality.repetition import count_repeats
from attnkit.tasks.translation.signs import NO_PROFILE, SignCounts, find_signs

IDS = [[5, 6, 7]]


@pytest.mark.parametrize(
    ("source", "text", "finished", "ids", "signs"),
    [
        ("a dog runs", "ein Hund rennt", True, IDS, []),
        ("a dog runs", "ein Hund rennt", False, IDS, ["cut"]),
        ("a dog runs", "ein ein ein ein Hund", True, IDS, ["repeated"]),
        ("a dog runs", "ein ein ein Hund", True, IDS, []),
        ("no no no no", "nein nein nein nein", True, IDS, []),
        ("a dog runs", "A dog  runs", True, IDS, ["copied"]),
        ("12 : 30", "12 : 30", True, IDS, []),
        ("a dog runs", " ", True, IDS, ["empty"]),
        ("a ☃ runs", "ein Hund rennt", True, [[5, UNK_ID]], ["unknown"]),
        ("a dog runs", "ein Hund rennt", True, [[5], [6]], ["split"]),
        ("see <b>a</b>", "siehe <b>a", True, IDS, ["lost"]),
        ("see <b>a</b>", "siehe <b>a</b>", True, IDS, []),
        ("at www.a.de by {name}", "auf www.a.de", True, IDS, ["lost"]),
        ("{a} and {a}", "{a} und", True, IDS, ["lost"]),
        ("it costs $3.50", "es kostet 3,50 $", True, IDS, []),
        ("it costs $3.50", "es kostet 3,60 $", True, IDS, ["lost"]),
        ("1 dog, 2 cats", "ein Hund, zwei Katzen", True, IDS, []),
        ("", "", True, [], []),
        ("a dog", "a dog a dog a dog a dog", False, [[5], [UNK_ID]], ["cut", "repeated", "unknown", "split"]),
    ],
)
def test_signs(source: str, text: str, finished: bool, ids: list[list[int]], signs: list[str]) -> None:
    assert find_signs(source, text, finished=finished, source_ids=ids, is_cut=len(ids) > 1) == signs


def test_repeats_are_counted_as_by_trying_all() -> None:
    draw = random.Random(0)
    for _ in range(300):
        words = draw.choices("ab", k=draw.randint(0, 14))

        def repeats(begin: int, length: int, words: list[str] = words) -> int:
            n = 1
            while words[begin + n * length : begin + (n + 1) * length] == words[begin : begin + length]:
                n += 1
            return n

        spans = [(i, k) for k in range(1, 9) for i in range(len(words) - k + 1)]
        assert count_repeats(words) == max((repeats(i, k) for i, k in spans), default=0)


def test_drawn_faults_have_their_flags() -> None:
    """Precision and recall of repetitions and copies put into 400 lines of distinct words."""
    draw = random.Random(1)
    names = [f"word{chr(97 + i)}{chr(97 + j)}" for i in range(26) for j in range(26)]
    wrong = right = 0
    for _ in range(400):
        source, target = draw.sample(names, draw.randint(3, 20)), draw.sample(names, draw.randint(3, 20))
        fault = draw.choice(["none", "copied", "repeated"])
        if fault == "copied":
            target = [word.upper() for word in source]
        elif fault == "repeated":
            at, length = draw.randrange(len(target)), draw.randint(1, 3)
            target[at:at] = target[at : at + length] * draw.randint(NO_PROFILE.repeats, 30)
        found = find_signs(" ".join(source), " ".join(target), finished=True, source_ids=IDS)
        right += found == ([] if fault == "none" else [fault])
        wrong += found != ([] if fault == "none" else [fault])
    assert (right, wrong) == (400, 0)


def test_a_summary_names_what_it_counts() -> None:
    counts = SignCounts()
    assert counts.as_text() == ""
    for signs in ([], ["cut", "repeated"], ["cut"], []):
        counts.add(signs)  # type: ignore[arg-type]
    assert counts.as_text() == "2 of 4 lines may be wrong: 2 cut at the maximum length, 1 with repetitions"
    counts.add(["short"])
    assert counts.as_text().endswith(", 1 too short for its source")
    counts.add(["short"])
    assert counts.as_text().endswith(", 2 too short for their source")


def test_a_summary_names_the_first_line_with_each_sign() -> None:
    counts = SignCounts()
    for line, signs in enumerate([[], ["unlike"], ["cut", "unlike"], ["cut"]], 1):
        counts.add(signs, line=1000 * line)  # type: ignore[arg-type]
    assert counts.as_text() == (
        "3 of 4 lines may be wrong: 2 cut at the maximum length (first in line 3,000), "
        "2 unlike the training text (first in line 2,000)"
    )
    counts.source = Path("b.en")
    counts.add(["empty"], line=7)
    counts.add(["cut"], line=8)
    assert "3 cut at the maximum length (first in line 3,000), 1 empty (in b.en:7)" in counts.as_text()


def test_the_command_sums_up_and_flags(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("1 2 3 4 5 6\n\n7 8 9 1 2 3\n")
    for more in ((), ("--json",)):
        command = ["translate", trained, "-i", tmp_path / "in", "--max-length", 2, "--device", "cpu", *more]
        monkeypatch.setattr("sys.argv", ["attnkit", *map(str, command)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        out, err = capsys.readouterr()
        assert err.startswith("2 of 3 lines may be wrong: 2 cut at the maximum length (first in line 1)")
    assert ["cut" in json.loads(line)["signs"] for line in out.splitlines()] == [True, False, True]
