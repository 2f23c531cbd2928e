"""``finetune`` as a user calls it, on texts; tagging and answering differ in their files alone."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli import finetune

Call = Callable[..., tuple[int, str, str]]
STEADY = ["--precision", "float32", "--device", "cpu", "--threads", "1", "--set", "optimization.batch_tokens=300"]


def arguments(pretrained: Path, table: Path, run: Path, *more: object) -> list[object]:
    return ["finetune", pretrained, "--task", "text-classification", "--train", table, "-o", run, *STEADY, *more]


def test_from_a_pretrained_run_to_a_classifier(call: Call, workshop: Any, pretrained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = arguments(pretrained, workshop.file("table.tsv"), run, "--max-steps", 3)
    code, out, err = call(*words)
    assert code == 0, err
    assert "done: 3 steps" in out and "macro F1" in out and f"attnkit predict {run}" in out
    assert "3 labels" in err and "texts: " in err
    code, out, err = call(*words)
    assert (code, err) == (0, "") and "is finished" in out
    code, out, err = call(*arguments(pretrained, workshop.file("table.tsv"), run, "--max-steps", 4, "--json"))
    assert code == 0 and json.loads(out)["step"] == 4
    code, out, _ = call("verify", run)
    assert code == 0 and "good" in out
    card = (run / "README.md").read_text()
    assert "A text classifier (bert)" in card and "attnkit predict run" in card and "table.tsv" in card
    code, _, err = call(*words, "--from-scratch")
    assert code == 2 and "finetuning.from_scratch: False -> True" in err


def test_a_classifier_at_chance_is_said_to_be(call: Call, pretrained: Path, tmp_path: Path) -> None:
    """Labels that the texts do not decide; then a development set of one label, and labels that can be learned."""
    (tmp_path / "even.tsv").write_text(
        "label\ttext\n" + "".join(f"{'ab'[i // 2 % 2]}\tfilm {i % 2}\n" for i in range(80))
    )
    (tmp_path / "more.tsv").write_text("label\ttext\n" + "a\tfilm 0\na\tfilm 1\nb\tfilm 0\n" * 9)
    (tmp_path / "one.tsv").write_text("label\ttext\n" + "a\tfilm 0\na\tfilm 1\n" * 9)
    words = arguments(pretrained, tmp_path / "even.tsv", tmp_path / "run", "--max-steps", 1, "--quiet", "--dev")
    code, out, err = call(*words, tmp_path / "more.tsv")
    assert code == 0 and "done: 1 steps" in out and "at chance" not in out, err
    warning = [line for line in err.splitlines() if "at chance" in line]
    assert len(warning) == 1 and warning[0].endswith("always predicting 'a' has 66.7 %"), err
    assert "--from-scratch" in err and max(map(len, err.splitlines())) <= 80
    code, _, err = call(*words, tmp_path / "more.tsv", "-o", tmp_path / "scratch", "--from-scratch")
    assert code == 0 and "at chance" in err and "--from-scratch" not in err
    code, _, err = call(*words, tmp_path / "one.tsv", "-o", tmp_path / "one")
    assert code == 0 and "at chance" not in err, err
    (tmp_path / "easy.tsv").write_text("label\ttext\na\tgood\nb\tbad\n" * 1 + "a\tgood\nb\tbad\n" * 40)
    easy = arguments(pretrained, tmp_path / "easy.tsv", tmp_path / "easy", "--max-steps", 40, "--quiet")
    code, out, err = call(*easy, "--dev", tmp_path / "easy.tsv", "--set", "optimization.learning_rate=0.01")
    assert code == 0 and "accuracy 100.0 %" in out and "at chance" not in err, out + err


def test_dry_run_shows_where_values_come_from(call: Call, workshop: Any, pretrained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    code, out, err = call(*arguments(pretrained, workshop.file("table.tsv"), run, "--dry-run", "--json"))
    shown = json.loads(out)
    assert (code, err) == (0, "") and not run.exists()
    values = shown["configuration"]
    assert values["model.d_model"] == {"value": 16, "origin": f"--init-from {pretrained}"}
    assert values["model.dropout"]["value"] == 0.1 and values["preset"]["origin"] == "width of the model"
    assert shown["plan"]["unit"] == "texts" and shown["plan"]["n_examples"] == 160


def test_dry_run_needs_no_development_file_where_the_run_would_resume(
    call: Call, workshop: Any, pretrained: Path, tmp_path: Path
) -> None:
    run, dev = tmp_path / "run", tmp_path / "dev.tsv"
    table = workshop.file("table.tsv")
    dev.write_bytes(table.read_bytes())
    words = arguments(pretrained, table, run, "--dev", dev, "--max-steps", 1)
    assert call(*words)[0] == 0
    dev.unlink()
    code, out, err = call(*words[:-1], 2, "--dry-run")
    assert (code, err) == (0, "") and "texts, about" in out
    code, _, err = call(*words[:-1], 2)
    assert code == 0, err
    for more in (["--overwrite"], ["-o", tmp_path / "other"]):
        code, _, err = call(*words, *more, "--dry-run")
        assert code == 2 and "dev.tsv" in err, err


OPENED: list[str] = []
"""Files opened since a test cleared the list."""


@pytest.fixture(scope="session")
def audited() -> list[str]:
    """Record every file that this process opens; an audit hook cannot be removed."""
    sys.addaudithook(lambda event, what: OPENED.append(str(what[0])) if event == "open" else None)
    return OPENED


@pytest.mark.parametrize("task", ["text-classification", "token-classification", "question-answering"])
def test_dry_run_encodes_the_training_file_once(
    call: Call, pretrained: Path, tmp_path: Path, audited: list[str], task: str
) -> None:
    rows = {
        "text-classification": ["label\ttext"] + [f"{'ab'[i % 2]}\tthe film {i}" for i in range(30)],
        "token-classification": [f"the O\nfilm{i} B-x\n" for i in range(30)],
    }
    tree: dict[str, Any] = {"version": "1.1", "data": [{"title": "", "paragraphs": []}]}
    train, dev = tmp_path / "train.json", tmp_path / "dev.json"
    for path in (train, dev):
        answers = [{"text": "film", "answer_start": 4}]
        questions = [{"id": path.stem, "question": "what was seen?", "answers": answers}]
        tree["data"][0]["paragraphs"] = [{"context": "the film", "qas": questions}]
        path.write_text("\n".join(rows[task]) + "\n" if task in rows else json.dumps(tree))
    # What is held out is not read again; of a single question nothing can be.
    for options in [["--dev", dev], []][: 1 if task == "question-answering" else 2]:
        audited.clear()
        words = [
            "finetune",
            pretrained,
            "--task",
            task,
            "--train",
            train,
            *options,
            "-o",
            tmp_path / "run",
            "--dry-run",
        ]
        code, _, err = call(*words, *STEADY[:6])
        assert (code, err) == (0, ""), err
        # Few examples are trained on more often, so their lines are counted first.
        assert audited.count(str(train)) == (1 if task == "question-answering" else 2), options


def test_a_folder_with_another_task_is_named(call: Call, workshop: Any, pretrained: Path, tmp_path: Path) -> None:
    """As where -o is left out twice."""
    run, columns = tmp_path / "run", tmp_path / "tags.conll"
    columns.write_text("the O\nfilm B-x\n\n" * 20)
    assert call(*arguments(pretrained, workshop.file("table.tsv"), run, "--max-steps", 1))[0] == 0
    code, out, err = call("finetune", pretrained, "--task", "token-classification", "--train", columns, "-o", run)
    assert (code, out) == (4, "") and "of task 'text-classification'" in err
    assert f"at -o {run}" in err and "--overwrite" in err and "--init-from" not in err


def test_a_configuration_may_name_the_task(call: Call, workshop: Any, pretrained: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("task: text-classification\nfinetuning:\n  freeze_layers: 1\n")
    words = [
        "finetune",
        pretrained,
        "--train",
        workshop.file("table.tsv"),
        "-o",
        tmp_path / "run",
        "--dry-run",
        "--json",
    ]
    code, out, err = call(*words, "--config", tmp_path / "own.yaml")
    assert code == 0, err
    shown = json.loads(out)["configuration"]
    assert shown["task"]["value"] == "text-classification" and shown["finetuning.freeze_layers"]["value"] == 1
    assert shown["task"]["origin"] == str(tmp_path / "own.yaml")
    for text, said in (
        ("task: classify\n", "names the task 'classify'; expected one of text-classification"),
        ("", "does not name a task"),
    ):
        (tmp_path / "own.yaml").write_text(text)
        code, _, err = call(*words, "--config", tmp_path / "own.yaml")
        assert code == 2 and "--task" in err and said in err
    os.mkfifo(tmp_path / "pipe")  # which is not opened, or this test would hang
    code, _, err = call(*words, "--config", tmp_path / "pipe")
    assert code == 2 and "--task" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["BERT"], 2, "--task"),
        (["BERT", "--task", "text-classification"], 2, "attnkit finetune RUN --task text-classification --train FILE"),
        (["BERT", "--task", "sort"], 2, "sort"),
        (["none", "--task", "text-classification", "--train", "good.tsv"], 4, "none"),
        (["BERT", "--task", "text-classification", "--train", "none.tsv"], 2, "none.tsv"),
        (["BERT", "--task", "text-classification", "--train", "alike.tsv"], 3, "every text has the label 'a'"),
        (
            ["BERT", "--task", "text-classification", "--train", "alike.tsv", "--dry-run"],
            3,
            "every text has the label 'a'",
        ),
        (
            ["BERT", "--task", "text-classification", "--train", "good.tsv", "--dev", "none.tsv", "--dry-run"],
            2,
            "none.tsv",
        ),
        (
            ["BERT", "--task", "text-classification", "--train", "good.tsv", "--dev", "other.tsv", "--dry-run"],
            3,
            "training labels: a, b",
        ),
        (
            ["BERT", "--task", "text-classification", "--train", "good.tsv", "--dev", "other.tsv"],
            3,
            "label 'c' does not occur",
        ),
        (
            ["BERT", "--task", "text-classification", "--train", "good.tsv", "--set", "model.n_heads=4"],
            4,
            "model.n_heads is 4",
        ),
        (
            ["BERT", "--task", "text-classification", "--train", "good.tsv", "--set", "finetuning.freeze_layers=9"],
            2,
            "the model has 2 layers",
        ),
    ],
)
def test_errors_are_short_and_say_what_to_do(
    call: Call,
    pretrained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alike.tsv").write_text("label\ttext\n" + "a\tsome film\n" * 9)
    Path("other.tsv").write_text("label\ttext\n" + "c\tsome film\n" * 9)
    Path("good.tsv").write_text("label\ttext\n" + "a\tsome film\nb\tthe people\n" * 9)
    found, out, err = call("finetune", *(str(pretrained) if word == "BERT" else word for word in words), "-o", "run")
    assert (found, out) == (code, "") and said in err, err
    assert len(err.strip().splitlines()) <= 4 and "Traceback" not in err


def test_the_examples_of_its_help(
    call: Call, workshop: Any, pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As dry runs."""
    monkeypatch.chdir(tmp_path)
    Path("bert").symlink_to(pretrained)
    for name in ("train.tsv", "dev.tsv"):
        Path(name).symlink_to(workshop.file("table.tsv"))
    Path("train.conll").write_text("the O\nfilm B-x\n\n" * 20)
    asked = {"question": "who", "answers": [{"text": "film", "answer_start": 4}]}
    paragraphs = [{"context": f"the film {n}", "qas": [{"id": str(n), **asked}]} for n in range(9)]
    Path("squad.json").write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    help = inspect.cleandoc(finetune.command.__doc__ or "")
    shown = help.split("Examples:")[1]
    assert all(len(line) <= 78 for line in shown.splitlines())  # indented by two more
    lines = shown.replace("\\\n", "").splitlines()
    examples = [shlex.split(line) for line in lines if "attnkit" in line]
    assert len(examples) == 5
    for words in examples:
        code, out, err = call(*words[1:], "--dry-run")
        assert (code, err) == (0, "") and "finetuning.layerwise_lr_decay" in out, err
