"""What a review found users would trip over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import main
from attnkit.errors import DataError, UsageError
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.text.sentences import split_line


def events_of(config: Any, run: Path, **options: Any) -> list[Any]:
    return list(train(TrainRequest(config, run, **options)))


def test_a_damaged_newest_checkpoint_is_named_in_a_warning(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    workshop.train(workshop.configure(limits__max_steps=12, checkpoints={"keep_last": 3}), run)
    path = run / "checkpoints" / "step-12" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    events = events_of(workshop.configure(limits__max_steps=12, checkpoints={"keep_last": 3}), run)
    warnings = [event.text for event in events if type(event).__name__ == "WarningEvent"]
    assert len(warnings) == 1 and "model.safetensors" in warnings[0] and "step-12" in warnings[0]


def test_a_metric_that_is_never_reported_is_refused_at_once(workshop: Any) -> None:
    with pytest.raises(UsageError, match=r"limits\.metric cannot be 'chfr'; choose one of loss"):
        workshop.configure(limits__metric="chfr")


def test_learned_positions_must_hold_what_may_come(workshop: Any) -> None:
    with pytest.raises(UsageError, match=r"learned positions need model\.max_length of 261"):
        workshop.configure(model__positions="learned", model__max_length=64)


def test_a_run_cannot_begin_with_itself(workshop: Any, tmp_path: Path) -> None:
    config, run = workshop.configure(limits__max_steps=2), tmp_path / "run"
    workshop.train(config, run)
    with pytest.raises(UsageError, match="initialized from itself"):
        events_of(config, run, overwrite=True, init_from=run)
    assert not (tmp_path / "run.old-1").exists()


def test_overlap_with_any_training_corpus_is_told(workshop: Any, tmp_path: Path) -> None:
    config = workshop.configure(limits__max_steps=1)
    data = config.data.model_copy(
        update={"src": (*config.data.src, *config.data.valid_src), "tgt": (*config.data.tgt, *config.data.valid_tgt)}
    )
    events = events_of(config.model_copy(update={"data": data}), tmp_path / "run")
    found = [f.name for event in events if type(event).__name__ == "DataCheckEvent" for f in event.report.findings]
    assert "pair_overlap" in found


def test_given_vocabularies_are_used(workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, run = tmp_path / "v.json", tmp_path / "run"
    arguments = ["vocab", str(workshop.file("train.src")), "-o", str(vocabulary), "--kind", "word"]
    monkeypatch.setattr(sys, "argv", ["attnkit", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    workshop.train(workshop.configure(limits__max_steps=1, vocabulary_files=[str(vocabulary)]), run)
    assert (run / "tokenizer.json").read_text().strip() == vocabulary.read_text().strip()


def test_prefixes_must_be_as_many_as_lines(workshop: Any, trained: Path, tmp_path: Path) -> None:
    from attnkit.tasks.translation.stream import TranslateRequest as Ask
    from attnkit.tasks.translation.stream import translate_stream

    (tmp_path / "src").write_text("1 2\n3 4\n")
    (tmp_path / "prefixes").write_text("2\n")
    ask = Ask([trained], tmp_path / "src", prefixes=tmp_path / "prefixes", device="cpu")
    with pytest.raises(DataError, match="only 1 target prefixes") as refused:
        list(translate_stream(ask, print))
    assert refused.value.where == str(tmp_path / "prefixes")


def test_splitting_leaves_times_and_numbers_whole() -> None:
    parts = split_line("it is 12:30 now, and 3,5 is a number", 5, lambda text: len(text.split()))
    assert parts == ["it is 12:30 now,", "and 3,5 is a number"]
    assert split_line("a b c" + " " * 20 + "d e f", 3, lambda text: len(text.split())) == ["a b c", "d e f"]


def test_one_string_is_no_list_of_lines(trained: Path) -> None:
    import attnkit

    with pytest.raises(UsageError, match="list of texts"):
        attnkit.load(trained, device="cpu").translate("1 2 3")


def test_an_interrupt_while_waiting_for_a_line_ends_with_130(trained: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "attnkit", "translate", str(trained), "--device", "cpu"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"1 2 3\n")
    process.stdin.flush()
    process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    try:
        process.wait(120)
        assert process.returncode == 130
    finally:
        process.kill()
        process.communicate()
