"""Cleaning: every line is kept or dropped for a reason, and an interruption changes nothing."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnkit.errors import DataError, RunError, SystemFailure, UsageError
from attnkit.io import atomic
from attnkit.io.lock import take_lock
from attnkit.quality import clean as module
from attnkit.quality.clean import clean
from attnkit.quality.clean_filters import repair
from attnkit.quality.clean_output import CleanRequest, output_names
from attnkit.quality.config import CleanConfig
from attnkit.text.toy.corpus import make_files

N = 900
FILES = make_files("english-french", N, 7, n_valid=2, n_test=2)
SRC, TGT = FILES["train.en"], FILES["train.fr"]


def write(folder: Path, src: list[str], tgt: list[str]) -> tuple[Path, Path]:
    paths = folder / "a.en", folder / "a.fr"
    for path, lines in zip(paths, (src, tgt), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    return paths


def cleaned(folder: Path, src: list[str], tgt: list[str], score: Any = None, **config: Any) -> tuple[Any, Path]:
    output = folder / "out"
    request = CleanRequest(*write(folder, src, tgt), output, CleanConfig(**config), overwrite=output.exists())
    return clean(request, score), output


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def reasons(output: Path) -> dict[int, str]:
    rows = [line.split("\t") for line in lines_of(output / "dropped.tsv")]
    return {int(row[0]): row[1] for row in rows}


def test_a_clean_corpus_is_kept_as_it_is(tmp_path: Path) -> None:
    report, output = cleaned(tmp_path, SRC, TGT)
    assert (report.n_src, report.n_tgt, report.kept, report.dropped, report.unused_targets) == (N, N, N, {}, 0)
    assert lines_of(output / "a.en") == SRC and lines_of(output / "a.fr") == TGT
    assert sorted(path.name for path in output.iterdir()) == ["a.en", "a.fr", "dropped.tsv", "report.json"]
    assert json.loads((output / "report.json").read_text())["kept"] == N


def test_every_reason_is_given_where_it_applies(tmp_path: Path) -> None:
    src, tgt = list(SRC), list(TGT)
    faults: dict[int, tuple[str, str, str]] = {
        10: ("", "", "blank"), 20: ("", TGT[19], "blank_source"), 30: (SRC[29], " ", "blank_target"),
        40: (SRC[39], SRC[39], "copied"), 50: (SRC[49], "x " * 1500, "long"), 60: (SRC[59], "le " * 400, "odd_ratio"),
        70: (SRC[1], TGT[1], "duplicate"), 80: (SRC[79], "большой дом стоит там", "other_script"),
        90: (TGT[89], SRC[89], "swapped"), 100: (SRC[99], "\ufffd" + TGT[99], "undecodable"),
        110: (SRC[109], SRC[300], "target_in_source_language"),
    }  # fmt: skip
    for line, (left, right, _) in faults.items():
        src[line - 1], tgt[line - 1] = left, right
    report, output = cleaned(tmp_path, src, tgt)
    assert reasons(output) == {line: reason for line, (_, _, reason) in faults.items()}
    assert report.kept + sum(report.dropped.values()) == report.n_src == N
    assert len(lines_of(output / "a.en")) == len(lines_of(output / "a.fr")) == report.kept
    loose = {"drop_copies": False, "check_languages": False, "duplicates": "keep", "max_ratio": None}
    report, output = cleaned(tmp_path, src, tgt, **loose)
    assert set(report.dropped) == {"blank", "blank_source", "blank_target", "long", "undecodable"}


def test_realigned_files_are_the_right_ones(tmp_path: Path) -> None:
    shifted = TGT[:300] + TGT[305:]
    report, output = cleaned(tmp_path, SRC[:-5], shifted, realign=True)
    kept = set(zip(lines_of(output / "a.en"), lines_of(output / "a.fr"), strict=True))
    right = set(zip(SRC, TGT, strict=True))
    assert len(kept & right) == N - 5 - 5 and kept <= right
    assert report.dropped == {"no_target": 5} and report.realigned == report.n_src - 305
    # Without --realign the same lines are dropped.
    report, output = cleaned(tmp_path, SRC[:-5], shifted)
    assert report.dropped["misaligned"] >= 580 and report.realigned == 0
    assert set(zip(lines_of(output / "a.en"), lines_of(output / "a.fr"), strict=True)) - right == set()


def test_unequal_files_can_be_realigned(tmp_path: Path) -> None:
    report, output = cleaned(tmp_path, SRC, TGT[:450] + TGT[451:], realign=True)
    assert (report.n_src, report.n_tgt, report.kept) == (N, N - 1, N - 1)
    wrong = set(zip(lines_of(output / "a.en"), lines_of(output / "a.fr"), strict=True)) - set(
        zip(SRC, TGT, strict=True)
    )
    assert not wrong


def test_near_duplicates_and_evidence(tmp_path: Path) -> None:
    src, tgt = list(SRC), list(TGT)
    src[100], tgt[100] = SRC[5].upper() + " !", TGT[5]
    tgt[200] = TGT[700]  # a wrong target, too short a stretch to be judged by itself
    assert cleaned(tmp_path, src, tgt)[0].kept == N
    report, output = cleaned(tmp_path, src, tgt, duplicates="near", min_evidence=-3.0)
    found = reasons(output)
    assert found[101] == "near_duplicate" and found[201] == "low_evidence" and report.kept >= N - 12


def test_scores_of_a_run_filter_what_is_left(tmp_path: Path) -> None:
    asked: list[str] = []

    def score(sources: list[str], targets: list[str]) -> list[float]:
        asked.extend(sources)
        return [-9.0 if source == SRC[3] else -1.0 for source in sources]

    report, output = cleaned(tmp_path, ["", *SRC[1:]], TGT, score, min_log_prob=-2.0)
    assert reasons(output) == {1: "blank_source", 4: "low_log_prob"} and len(asked) == N - 1
    assert report.kept == N - 2


def test_repairs(tmp_path: Path) -> None:
    assert (
        repair("p\u0430ss \u043c\u043bo\u043a\u043e \u0391thens") == "pass млоко Athens"
        and repair("a\ufeffb\x00") == "ab"
    )
    assert repair("5 kΩ 3 μm β-x") == "5 kΩ 3 μm β-x"
    assert repair("cafÃ© &amp; the") == "café & the" and repair("the&nbsp;e\u0301tude") == "the étude"
    upper = ["“AMANHÃ”", "AMANHÃ”", "SÃO PAULO – Ã…", "ROMÂ–N"]
    for right in (*upper, "?a=1&copy=2&section=3", "&notin", "MÃ¤dchen „Spaß“"):
        assert repair(right) == right
    assert repair("a\tb") == "a b" and repair("plain  text") == "plain  text"
    tgt = [line.encode().decode("cp1252", "replace").replace("\ufffd", "") for line in TGT[:50]] + TGT[50:]
    report, output = cleaned(tmp_path, SRC, tgt, repair=True)
    same = sum(a == b for a, b in zip(lines_of(output / "a.fr"), TGT, strict=False))
    assert report.repaired > 5 and same == N


@pytest.mark.parametrize("stop_at", [1, 2, 4])
def test_an_interruption_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
    monkeypatch.setattr(module, "PART", 200)
    # A reader of text would drop the second carriage return of some lines; they repeat in a later part all the same.
    odd = ["it is snowing\r\r", *SRC[1:197], "it rains\r\r", SRC[0]]
    src = [*odd, *SRC[199:-6], "", odd[0], SRC[1], "it rains\r\r", "\u200b", SRC[2]]
    tgt = [*TGT[:-6], "", TGT[0], TGT[1], TGT[197], "", TGT[2]]
    assert len(src) == len(tgt) == N
    paths = write(tmp_path, src, tgt)
    clean(CleanRequest(*paths, tmp_path / "whole", CleanConfig()))
    calls = 0

    def progress(n_lines: int) -> None:
        nonlocal calls
        calls += n_lines > 0
        if calls == stop_at:
            raise KeyboardInterrupt

    request = CleanRequest(*paths, tmp_path / "stopped", CleanConfig())
    with pytest.raises(KeyboardInterrupt):
        clean(request, progress=progress)
    # What was appended after the last progress is cut off.
    with (tmp_path / "stopped" / "a.en.part").open("a") as file:
        file.write("half a li")
    calls = 100
    clean(request, progress=progress)
    assert calls - 100 == 5 - stop_at + 1  # what was done before is said first
    assert list(reasons(tmp_path / "whole").values()).count("duplicate") == 4
    for name in ("a.en", "a.fr", "dropped.tsv", "report.json"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_kill_between_renames_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = CleanRequest(*write(tmp_path, SRC, TGT), tmp_path / "out", CleanConfig())
    real, moved = atomic.move, []

    def move(source: Path, goal: Path) -> None:
        if len(moved) == 1:
            raise KeyboardInterrupt
        moved.append(goal)
        real(source, goal)

    monkeypatch.setattr(atomic, "move", move)
    with pytest.raises(KeyboardInterrupt):
        clean(request)
    monkeypatch.setattr(atomic, "move", real)
    report = clean(request)
    assert (report.kept, report.n_tgt) == (N, N) and lines_of(tmp_path / "out" / "a.en") == SRC


def test_a_finished_cleaning_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = CleanRequest(*write(tmp_path, SRC, TGT), tmp_path / "out", CleanConfig())
    report = clean(request)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in request.output.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("attnkit.quality.clean.read_spans", None)
        assert clean(request) == report
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in request.output.iterdir()} == before
    os.utime(request.src, ns=(1, 1))
    with pytest.raises(UsageError, match=r"is finished, with other input or settings: files\n"):
        clean(request)
    assert clean(replace(request, overwrite=True)) == report
    (output := request.output / output_names(request.src, request.tgt)[1]).unlink()
    with pytest.raises(RunError, match=f"is finished, but {output.name} is missing"):
        clean(request)


def test_folders_that_are_not_its_own_are_left_alone(tmp_path: Path) -> None:
    paths = write(tmp_path, SRC, TGT)
    output = tmp_path / "out"
    clean(CleanRequest(*paths, output, CleanConfig()))
    with pytest.raises(UsageError, match=r"is finished, with other input or settings: max_uses: null -> 3\n"):
        clean(CleanRequest(*paths, output, CleanConfig(max_uses=3)))
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="other files"):
            clean(CleanRequest(*paths, other, CleanConfig(), overwrite))
    assert [path.name for path in other.iterdir()] == ["thesis.tex"]
    (output / "progress.json").write_text('{"settings": 1}')
    with pytest.raises(RunError, match="damaged"):
        clean(CleanRequest(*paths, output, CleanConfig()))


def test_overwriting_replaces_an_earlier_result_of_other_files(tmp_path: Path) -> None:
    paths, output = write(tmp_path, SRC, TGT), tmp_path / "out"
    clean(CleanRequest(*paths, output, CleanConfig()))
    others = [path.rename(path.with_name(f"b{path.suffix}")) for path in paths]
    request = CleanRequest(others[0], others[1], output, CleanConfig(), overwrite=True)
    assert clean(request).kept == N
    assert sorted(path.name for path in output.iterdir()) == ["b.en", "b.fr", "dropped.tsv", "report.json"]
    (output / "mine").write_text("x")
    with pytest.raises(UsageError, match="other files"):
        clean(request)


def test_changed_settings_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 200)
    paths = write(tmp_path, SRC, TGT)

    def stop(n_lines: int) -> None:
        if n_lines:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clean(CleanRequest(*paths, tmp_path / "out", CleanConfig()), progress=stop)
    with pytest.raises(UsageError, match="other input or settings"):
        clean(CleanRequest(*paths, tmp_path / "out", CleanConfig(max_characters=50)))
    assert clean(CleanRequest(*paths, tmp_path / "out", CleanConfig(), True)).kept == N


def test_nothing_left_is_an_error_that_names_the_filter(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no pair is left") as caught:
        cleaned(tmp_path, SRC, TGT, min_characters=5000, max_characters=9000)
    assert "short" in str(caught.value.help) and (tmp_path / "out" / "dropped.tsv").read_text()


def test_input_in_the_output_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    src, tgt = write(tmp_path, ["a dog"] * 3, ["ein Hund"] * 3)
    folder.mkdir()
    inside = [Path(shutil.copy(path, folder)) for path in (src, tgt)]
    (folder / "report.json").write_text("{}")
    with pytest.raises(UsageError, match="lies in the output folder"):
        clean(CleanRequest(inside[0], inside[1], folder, CleanConfig(), overwrite=True))
    assert all(path.read_text() for path in inside)


@pytest.mark.parametrize("theirs", ["thesis.tex", "other.en"])
def test_overwriting_spares_folders_with_anything_else(tmp_path: Path, theirs: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "report.json").write_text('{"mine": 1}')
    (folder / theirs).write_text("precious")
    src, tgt = write(tmp_path, ["a dog"] * 3, ["ein Hund"] * 3)
    with pytest.raises(UsageError, match="holds other files"):
        clean(CleanRequest(src, tgt, folder, CleanConfig(), overwrite=True))
    assert (folder / theirs).read_text() == "precious"


def test_resuming_refuses_changed_input_and_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    src, tgt = write(tmp_path, [f"a dog {i}" for i in range(9)], [f"ein Hund {i}" for i in range(9)])

    def stop(self: object) -> None:
        raise KeyboardInterrupt

    request = CleanRequest(src, tgt, tmp_path / "out", CleanConfig(), scored_by="one")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("attnkit.io.resumable.ResumableFiles.finish", stop)
        clean(request)
    with pytest.raises(UsageError, match="other input or settings"):
        clean(replace(request, scored_by="two"))
    os.utime(src, ns=(1, 1))
    with pytest.raises(UsageError, match="other input or settings"):
        clean(request)


@pytest.mark.parametrize("name", ["move", "remove_tree", "write_text"])
def test_a_kill_at_any_write_of_the_end_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    src, tgt = write(tmp_path, [f"a dog {i}" for i in range(9)], [f"ein Hund {i}" for i in range(9)])
    clean(CleanRequest(src, tgt, tmp_path / "whole", CleanConfig()))
    wanted = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    real, n_kills = getattr(atomic, name), 0
    for stop_at in range(20):
        request = CleanRequest(src, tgt, tmp_path / f"out{stop_at}", CleanConfig())
        calls = iter(range(20))

        def once(*args: Any, at: int = stop_at, calls: Any = calls) -> None:
            if next(calls) == at:
                raise KeyboardInterrupt
            real(*args)

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(atomic, name, once)
            clean(request)
            break
        n_kills += 1
        clean(request)  # it may be finished but for the last step
        found = {path.name: path.read_bytes() for path in request.output.iterdir()}
        # The lock of a killed job stays; nobody holds it.
        assert {key: value for key, value in found.items() if key not in ("progress.json", "lock")} == wanted
    assert n_kills > 1


def test_utf16_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    src, tgt = write(tmp_path, ["a dog"] * 30, ["ein Hund"] * 30)
    tgt.write_bytes(tgt.read_text().encode("utf-16"))
    with pytest.raises(DataError, match="UTF-8"):
        clean(CleanRequest(src, tgt, tmp_path / "out", CleanConfig()))
    assert not (tmp_path / "out").exists()


def test_evidence_cannot_be_asked_of_files_without_any(tmp_path: Path) -> None:
    src, tgt = write(tmp_path, ["a dog"] * 3, ["ein Hund"] * 3)
    with pytest.raises(DataError, match="no evidence"):
        clean(CleanRequest(src, tgt, tmp_path / "out", CleanConfig(min_evidence=3.0)))


def test_two_jobs_do_not_write_one_folder(tmp_path: Path) -> None:
    request = CleanRequest(*write(tmp_path, SRC, TGT), tmp_path / "out", CleanConfig())
    request.output.mkdir()
    with take_lock(request.output), pytest.raises(SystemFailure, match="in use by process"):
        clean(request)
    assert clean(request).kept == N  # the lock of a process that ended is nobody's
    assert not (request.output / "lock").exists()
    with take_lock(request.output), pytest.raises(SystemFailure, match="in use by process"):
        clean(replace(request, overwrite=True))
    assert lines_of(request.output / "a.en") == SRC


@pytest.mark.parametrize(
    ("src", "tgt", "names"),
    [
        ("a.en", "a.de.gz", ("a.en", "a.de")),
        ("x/a", "y/a", ("a.src", "a.tgt")),
        ("report.json", "a.de", ("report.json.src", "a.de.tgt")),
        ("a.en", "dropped.tsv.gz", ("a.en.src", "dropped.tsv.tgt")),
        ("a", "a.part", ("a.src", "a.part.tgt")),
        ("a.en", "lock", ("a.en.src", "lock.tgt")),
        ("Report.JSON", "a", ("Report.JSON.src", "a.tgt")),
    ],
)
def test_names_of_outputs_never_collide(src: str, tgt: str, names: tuple[str, str]) -> None:
    assert output_names(Path(src), Path(tgt)) == names


def test_dropped_pairs_are_the_original_ones(tmp_path: Path) -> None:
    tgt = ["cafÃ© &amp; thÃ© " + "x" * 3000, *TGT[1:]]
    _, output = cleaned(tmp_path, SRC, tgt, repair=True)
    (row,) = lines_of(output / "dropped.tsv")
    assert row.split("\t") == ["1", "long", SRC[0], tgt[0]]


def test_pairs_that_overlap_a_test_set_are_dropped(tmp_path: Path) -> None:
    held_out = "The old gardener of the northern village has never seen the yellow bicycle behind our house."
    src, tgt = list(SRC), list(TGT)
    src[10] = held_out.upper()  # equal but for case
    src[20] = held_out.replace("yellow", "red")  # one word of 15
    src[30] = f"Yesterday we heard: {held_out} Nobody believed it."  # within a longer line
    src[40] = "The old gardener of the southern town has often seen a red car in front of his own flat."
    test = tmp_path / "test.en"
    test.write_text(f"{held_out}\n{TGT[700]}\n")
    request = CleanRequest(*write(tmp_path, src, tgt), tmp_path / "out", CleanConfig(), test=(test,))
    clean(request)
    found = reasons(request.output)
    same = [line + 1 for line, one in enumerate(TGT) if one == TGT[700]]
    assert {line for line, reason in found.items() if reason == "test_overlap"} == {11, 21, 31, *same}


def test_boilerplate_and_repetitions_are_dropped_if_asked(tmp_path: Path) -> None:
    src, tgt = list(SRC), list(TGT)
    for line in range(3, 753, 25):
        src[line] = "All rights of this page are reserved."
    tgt[200] = "le chien le chien le chien le chien dort"
    assert cleaned(tmp_path, src, tgt)[0].kept == N
    report, output = cleaned(tmp_path, src, tgt, max_uses=20, drop_repeated=True)
    assert report.dropped == {"boilerplate": 10, "repeated": 1}
    assert reasons(output) == {201: "repeated", **dict.fromkeys(range(504, 754, 25), "boilerplate")}


def test_two_processes_give_the_result_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_SHARED_OUT", 1)
    monkeypatch.setattr("attnkit.quality.clean_filters.CHUNK", 100)
    src, tgt = list(SRC), [line if number % 50 else f"{line} Ã©" for number, line in enumerate(TGT)]
    src[10], tgt[20], src[30], tgt[40] = "", SRC[20], SRC[2], "le " * 400
    config = CleanConfig(repair=True, duplicates="near", min_evidence=-3.0)
    paths = write(tmp_path, src, tgt[:500] + tgt[501:])
    results = []
    for n in (1, 2):
        clean(CleanRequest(*paths, tmp_path / f"out{n}", config, n_processes=n))
        results.append({path.name: path.read_bytes() for path in (tmp_path / f"out{n}").iterdir()})
    assert results[0] == results[1]


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    paths = write(tmp_path, SRC, [])
    with pytest.raises(DataError, match="empty"):
        clean(CleanRequest(*paths, tmp_path / "out", CleanConfig()))
    assert not (tmp_path / "out").exists()
