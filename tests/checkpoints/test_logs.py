"""Logs whose damage is seen, cut back to what a checkpoint knew; the status for launchers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnkit.checkpoints.logs import MAX_LINE, Status, append_record, parse_line, read_status
from attnkit.checkpoints.run_folder import RunFolder

RECORDS: list[dict[str, object]] = [
    {"step": 1, "loss": 3.25, "samples": ["é\u2028", {"a": None}]},
    {"step": 2, "loss": 1e-300, "ok": True},
    {"step": 3, "text": '"check":"00000000"}'},
]


def read_records(path: Path) -> tuple[list[dict[str, object]], list[int]]:
    """Return the records of a log and the numbers of its damaged lines."""
    with path.open("rb") as stream:
        found = [parse_line(line) for line in iter(lambda: stream.readline(MAX_LINE), b"")]
    return [r for r in found if r is not None], [n for n, r in enumerate(found, start=1) if r is None]


def test_records_come_back_and_each_line_is_json(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for record in RECORDS:
        append_record(path, record)
    assert read_records(path) == (RECORDS, [])
    lines = path.read_bytes().splitlines()
    assert [{**record, "check": json.loads(line)["check"]} for record, line in zip(RECORDS, lines, strict=True)] == [
        json.loads(line) for line in lines
    ]


def test_every_flipped_bit_of_a_log_is_seen_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_record(path, {"step": 1, "loss": 3.25})
    append_record(path, {"step": 2})
    raw = path.read_bytes()
    for place in range(raw.index(b"\n") + 1):
        changed = bytearray(raw)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        records, damaged = read_records(path)
        assert {"step": 1, "loss": 3.25} not in records
        assert damaged[0] == 1


def test_a_torn_last_line_and_hostile_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_record(path, {"step": 1})
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:9])
    assert read_records(path) == ([{"step": 1}], [2])
    path.write_bytes(b"[" * 3_000_000 + b"\n\xff\n\n")
    assert read_records(path)[0] == []


def test_numbers_that_are_not_finite_are_shown_not_hidden(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_record(path, {"loss": float("nan"), "norms": [float("inf"), {"x": -float("inf")}]})
    assert read_records(path)[0] == [{"loss": "nan", "norms": ["inf", {"x": "-inf"}]}]


def test_misuse_is_refused(tmp_path: Path) -> None:
    for record in ({}, {"check": 1}):
        with pytest.raises(ValueError, match="at least one field"):
            append_record(tmp_path / "log", record)


def test_metrics_are_cut_to_what_the_checkpoint_knew(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.metrics_size == 0
    assert run.truncate_metrics(0) == []
    append_record(run.metrics_path, {"step": 1})
    known = run.metrics_size
    before = run.metrics_path.read_bytes()
    append_record(run.metrics_path, {"step": 2})
    assert run.truncate_metrics(known) == []
    assert run.metrics_path.read_bytes() == before
    assert read_records(run.metrics_path) == ([{"step": 1}], [])
    assert run.truncate_metrics(known + 7) == [f"{run.metrics_path} is 7 bytes shorter than its checkpoint recorded"]
    assert run.metrics_path.read_bytes() == before


def test_status_comes_back_and_nonsense_is_none(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert read_status(run.path) is None
    status = Status(state="failed", step=7, reason="disk full", exit_code=5, facts={"bleu": 31.5})
    run.write_status(status)
    assert read_status(run.path) == status
    for nonsense in (b"", b"[" * 100_000, b'{"state": "asleep"}', b"\xff"):
        (tmp_path / "status.json").write_bytes(nonsense)
        assert read_status(run.path) is None


def test_copies_for_people(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_copy("README.md", b"# a card\n")
    run.write_copy("README.md", b"# a newer card\n")
    assert (tmp_path / "README.md").read_bytes() == b"# a newer card\n"
