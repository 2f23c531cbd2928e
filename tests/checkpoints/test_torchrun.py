"""What an attempt of torchrun's knows of the one before it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from attnkit.checkpoints.logs import Status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.torchrun import fail_fast_on_repeat, failure_facts, is_of_this_launch, launch_facts
from attnkit.errors import PeerFailedError, PeerLostError, SystemFailure


def begin(monkeypatch: pytest.MonkeyPatch, launch: str, attempt: int) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(attempt))
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", f"/logs/{launch}/attempt_{attempt}/1/error.json")


def fail(run: RunFolder, code: int) -> None:
    run.write_status(Status(state="failed", reason="it cannot be", exit_code=code, facts={**launch_facts()}))


@pytest.mark.parametrize("code", [2, 3, 4, 5, 6])
def test_a_repeating_failure_ends_the_attempts_of_its_launch_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    run = RunFolder(tmp_path)
    begin(monkeypatch, "none_a", 0)
    fail(run, code)
    for attempt in (1, 2):
        begin(monkeypatch, "none_a", attempt)
        with pytest.raises(PeerFailedError, match="it cannot be") as caught:
            fail_fast_on_repeat(tmp_path)
        assert (caught.value.exit_code, caught.value.lines()) == (code, [])
    for launch, attempt in ("none_b", 0), ("none_b", 1):
        begin(monkeypatch, launch, attempt)
        fail_fast_on_repeat(tmp_path)


def test_a_lost_process_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is a failure of the system as a full disk is, but nobody knows what ended the other."""
    begin(monkeypatch, "none_a", 0)
    for error in (SystemFailure("no room"), PeerLostError("another process has ended")):
        status = Status(state="failed", reason=str(error), exit_code=5, facts=failure_facts(error))
        RunFolder(tmp_path).write_status(status)
        begin(monkeypatch, "none_a", 1)
        with nullcontext() if isinstance(error, PeerLostError) else pytest.raises(PeerFailedError):
            fail_fast_on_repeat(tmp_path)


@pytest.mark.parametrize("code", [1, 130, 143])
def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int) -> None:
    begin(monkeypatch, "none_a", 1)
    fail_fast_on_repeat(tmp_path)  # nothing was written
    fail(RunFolder(tmp_path), code)
    fail_fast_on_repeat(tmp_path)
    (tmp_path / "status.json").write_text("[")
    fail_fast_on_repeat(tmp_path)


def test_a_launch_without_error_files_has_a_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, "none_a", 0)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "")
    status = Status(state="running", facts={**launch_facts()})
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert is_of_this_launch(status)


def test_without_torchrun_there_is_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert launch_facts() == {}
    assert not is_of_this_launch(Status(state="failed"))
