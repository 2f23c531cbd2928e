"""``predict`` as a user calls it, on runs that ``finetune`` made; and what else is done with such runs."""

from __future__ import annotations

import inspect
import io
import json
import random
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli import predict
from attnkit.cli.main import main

Call = Callable[..., tuple[int, str, str]]
STEADY = ["--precision", "float32", "--device", "cpu", "--threads", "1", "--max-steps", "3"]
SETS = ["optimization.batch_tokens=300", "optimization.learning_rate=0.01", "evaluation.every_steps=1"]
SETS += ["checkpoints.keep_last=3", "optimization.warmup_steps=1"]
WORDS = ["the", "film", "people", "went", "home", "again"]


def write_columns(path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    lines = []
    for _ in range(30):
        words = drawn.choices(WORDS, k=drawn.randint(1, 7))
        lines += [*(f"{word}\t{'B-x' if word == 'film' else 'O'}" for word in words), ""]
    path.write_text("\n".join(lines) + "\n")


def write_squad(path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    paragraphs = []
    for number in range(20):
        context = " ".join(drawn.choices(WORDS, k=drawn.randint(3, 9)))
        answer = drawn.choice(context.split())
        qas = {"id": f"{seed}-{number}", "question": f"who went {answer}"}
        answers = [{"text": answer, "answer_start": context.index(answer)}]
        paragraphs.append({"context": context, "qas": [{**qas, "answers": answers}]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}))


KINDS = {
    "text-classification": ("run", "tsv"),
    "token-classification": ("tagger", "conll"),
    "question-answering": ("reader", "json"),
}


@pytest.fixture(scope="module")
def bench(workshop: Any, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files to train on and to test on, and a run of each kind."""
    folder = tmp_path_factory.mktemp("bench")
    table = workshop.file("table.tsv").read_text().splitlines(keepends=True)
    (folder / "train.tsv").write_text("".join(table[:121]))
    (folder / "test.tsv").write_text("".join([table[0], *table[121:]]))
    for seed, name in enumerate(("train", "test")):
        write_columns(folder / f"{name}.conll", seed)
        write_squad(folder / f"{name}.json", seed)
    for task, (run, suffix) in KINDS.items():
        files = ["--train", folder / f"train.{suffix}", "--dev", folder / f"test.{suffix}"]
        words = ["finetune", pretrained, "--task", task, *files, "-o", folder / run, *STEADY]
        sets = [part for one in SETS for part in ("--set", one)]
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setattr(sys, "argv", ["attnkit", *map(str, [*words, *sets])])
            main()
        assert not ended.value.code
    return folder


@pytest.mark.parametrize("task", KINDS)
def test_scores_are_those_of_the_development_set(call: Call, bench: Path, task: str) -> None:
    """Of the same file, by the same checkpoint."""
    name, suffix = KINDS[task]
    names = {
        "text-classification": {"accuracy", "macro_f1"},
        "token-classification": {"accuracy", "f1"},
        "question-answering": {"exact", "f1"},
    }[task]
    lines = map(json.loads, (bench / name / "metrics.jsonl").read_text().splitlines())
    scored = {line["step"]: line for line in lines if line.keys() >= names}
    for step in (2, 3):
        words = ["predict", bench / name, bench / f"test.{suffix}", "--gold", "--summary", "--json"]
        code, out, err = call(*words, "--checkpoint", f"step-{step}")
        assert code == 0, err
        found = json.loads(out)
        assert {key: found[key] for key in names} == pytest.approx({key: scored[step][key] for key in names})


@pytest.mark.parametrize("task", KINDS)
def test_such_runs_are_verified_averaged_and_described(call: Call, bench: Path, tmp_path: Path, task: str) -> None:
    name, suffix = KINDS[task]
    code, out, err = call("average", bench / name, "-n", "2")
    assert code == 0, err
    code, out, err = call("verify", bench / name)
    assert code == 0 and "averaged" in out and "good" in out, out + err
    code, out, err = call(
        "predict",
        bench / name,
        bench / f"test.{suffix}",
        "--format",
        {"text-classification": "table"}.get(task, "auto"),
    )
    assert code == 0, err
    given = (bench / f"test.{suffix}").read_text()
    if task == "token-classification":  # its columns with one more, though no labels are asked for
        lines, expected = out.split("\n")[:-1], given.split("\n")[:-1]
        assert len(lines) == len(expected) == given.count("\n") > 60
        assert [re.sub(r"(\t[^\t]+)\t(O|B-x|I-x)$", r"\1", line) for line in lines] == expected
        assert {line.count("\t") for line in lines if line} == {2}
    else:
        assert (
            len(out.splitlines())
            == {"text-classification": given.count("\n") - 1, "question-answering": given.count('"id"')}[task]
        )
    card = (bench / name / "README.md").read_text()
    assert f"attnkit predict {name}" in card


def test_the_examples_of_its_help(call: Call, bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in bench.iterdir():
        Path(path.name).symlink_to(path)
    Path("dev.json").symlink_to("test.json")
    shown = inspect.cleandoc(predict.command.__doc__ or "").split("Examples:")[1]
    assert all(len(line) <= 78 for line in shown.splitlines())  # indented by two more
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    outs = []
    for line in lines:
        said, _, command = line.rpartition(" | ")
        if said:
            text = shlex.split(said)[1]
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode())))
        code, out, err = call(*shlex.split(command)[1:])
        assert code == 0, err
        outs.append((out, err))
    assert len(outs) == 4 and re.fullmatch(r"(bad|good|mixed)\t[01]\.\d{4}\n", outs[0][0])
    assert len(outs[1][0].splitlines()) == 40 and "40 examples, accuracy" in outs[1][1] and "recall" in outs[1][1]
    page = Path("confusion.html").read_text()
    assert "run: 40 examples, accuracy" in page and "<td" in page and "wrote confusion.html" in outs[1][1]
    assert "sentences" in outs[2][0] and "precision" in outs[2][0] and outs[2][1] == ""
    answers = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    assert len(answers) == 20 and answers[3].keys() == {"id", "answer", "probability", "begin", "end"}
    assert outs[3] == ("", "")


def test_lines_go_through_and_totals_come_apart(call: Call, bench: Path, tmp_path: Path) -> None:
    code, out, err = call("predict", bench / "tagger", bench / "test.conll", "--gold", "-o", tmp_path / "out.conll")
    assert (code, out) == (0, "") and "entities" in err and "F1" in err
    given, found = (bench / "test.conll").read_text().splitlines(), (tmp_path / "out.conll").read_text().splitlines()
    assert len(found) == len(given)
    assert all(
        two == one or re.fullmatch(re.escape(one) + "\t(O|B-x|I-x)", two) for one, two in zip(given, found, strict=True)
    )
    code, out, _ = call("predict", bench / "run", bench / "test.tsv", "--gold", "--json", "--all")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len(lines) == 41 and lines[-1]["examples"] == 40
    assert all(sum(line["all"].values()) == pytest.approx(1, abs=1e-5) for line in lines[:-1])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere", "test.tsv"], 4, "no such run folder: nowhere"),
        (["run", "none.tsv"], 2, "no such file: none.tsv"),
        (["run", "test.tsv", "--summary"], 2, "this option requires gold labels"),
        (["run", "test.tsv", "--gold", "--summary", "-o", "totals.txt"], 2, "add --json, or omit -o"),
        (["run", "test.tsv", "--confusion", "page.html"], 2, "--gold"),
        (["run", "test.conll", "--gold"], 3, "test.conll:"),
        (["run", "test.tsv", "--gold", "-o", "test.tsv"], 2, "also an input file"),
        (["run", "test.tsv", "--format", "conll"], 2, "does not support the format 'conll'"),
        (["tagger", "test.conll", "--all"], 2, "add --json, or leave out --all"),
        (
            ["reader", "test.json", "--gold", "--confusion", "page.html"],
            2,
            "question-answering has no confusion matrix",
        ),
        (["reader", "test.tsv"], 3, "test.tsv:1"),
        (["BERT", "test.tsv"], 4, "fine-tune it with attnkit finetune"),
        (["run", "test.tsv", "--checkpoint", "step-99"], 4, "step-99"),
    ],
)
def test_errors_are_short_and_say_what_to_do(
    call: Call, bench: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(bench)
    found, out, err = call("predict", *(str(pretrained) if word == "BERT" else word for word in words))
    assert found == code and said in err, err
    assert not out or code == 3, "the text before a line that is refused is answered"
    assert len(err.strip().splitlines()) <= 3 and "Traceback" not in err
    assert not Path("page.html").exists()


def test_questions_that_are_cut_are_told(call: Call, bench: Path, tmp_path: Path) -> None:
    asked = {"question": "who went home again " * 40, "context": "the film went home"}
    (tmp_path / "asked.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in (asked, {**asked, "question": "?"}))
    )
    code, out, err = call("predict", bench / "reader", tmp_path / "asked.jsonl")
    assert code == 0 and len(out.splitlines()) == 2
    assert re.search(r"1 question has more than \d+ tokens; the rest was truncated", err), err


def test_other_commands_send_such_runs_here(call: Call, bench: Path) -> None:
    code, _, err = call("translate", bench / "run", "-i", bench / "test.tsv")
    assert code == 4 and "use attnkit predict" in err
