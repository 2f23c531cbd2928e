"""What a user sees who made a mistake: at most three lines on stderr, nothing on stdout, the design's exit code."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import COMMANDS, GROUPS, describe
from attnkit.config import has_key
from attnkit.config.other_tools import KEYS
from attnkit.engine.registry import TASKS

Call = Callable[..., tuple[int, str, str]]


def refused(answer: tuple[int, str, str], code: int, *words: str) -> list[str]:
    """Check the form of an error and return its lines."""
    found, out, err = answer
    assert (found, out) == (code, "")
    lines = err.splitlines()
    assert lines[0].startswith("error: ") and len(lines) <= 3, err
    assert "Traceback" not in err
    for word in words:
        assert word in err
    return lines


def test_missing_files(call: Call, workshop: Any, trained: Path, tmp_path: Path) -> None:
    train = ["train", "--tgt", workshop.file("train.tgt"), "-o", tmp_path / "run"]
    refused(call(*train, "--src", workshop.file("train.scr")), 2, "no such file", "did you mean", "train.src?")
    refused(call("translate", trained, "-i", tmp_path / "missing"), 2, "no such file")
    refused(call("score", trained, tmp_path / "missing", workshop.file("test.tgt")), 2, "no such file")
    refused(call("train", "--config", tmp_path / "c.yaml"), 2, "cannot read the configuration", "c.yaml")
    assert not (tmp_path / "run").exists()


def test_keys_and_values(call: Call, workshop: Any, tmp_path: Path) -> None:
    train = workshop.arguments("transformer", tmp_path / "run")
    lines = refused(call(*train, "--set", "model.d_modle=32"), 2, "unknown key 'model.d_modle'")
    assert lines[-1] == "help: did you mean 'model.d_model'?"
    lines = refused(call(*train, "--set", "model.d_model=wide"), 2, 'model.d_model: invalid value "wide"', "integer")
    assert "--set model.d_model" in lines[1]
    refused(call(*train, "--set", "model.norm=past"), 2, "'post' or 'pre'", "did you mean 'post'?")
    refused(call(*train, "--set", "model.dropout=1.5"), 2, "less than 1")
    refused(call(*train, "--set", "model.d_model"), 2, "--set expects KEY=VALUE")
    refused(call(*train, "--set", "optimization.betas=[0.9"), 2, "not valid YAML")
    refused(call(*train, "--set", "model.n_heads=3"), 2, "multiple of n_heads")
    (tmp_path / "c.yaml").write_text("model:\n  kind: transformer\nmodel: {}\n")
    refused(call(*train, "--config", tmp_path / "c.yaml"), 2, "duplicate key 'model'", "c.yaml:3")
    (tmp_path / "c.yaml").write_text("optimisation: {learning_rate: 1e-3}\n")
    refused(call(*train, "--config", tmp_path / "c.yaml"), 2, "did you mean 'optimization'?", "c.yaml")


def test_arguments_too_many_are_answered_with_the_option_that_is_meant(call: Call) -> None:
    for given, meant in (
        ("multi30k.yaml", "attnkit train --config multi30k.yaml"),
        ("a.en a.de", "attnkit train --src a.en --tgt a.de"),
        ("a b c", "attnkit train --help"),
    ):
        refused(call("train", *given.split()), 2, f"unexpected extra argument(s) ({given})", meant)
    refused(call("check", "a", "b", "c"), 2, "unexpected extra argument(s) (c)", "attnkit check --help")


def test_commands_and_flags(call: Call, trained: Path) -> None:
    refused(call("trian"), 2, "unknown command 'trian'", "did you mean 'train'?")
    refused(call("xyzzy"), 2, "attnkit --help")
    refused(call("translate", trained, "--beem-size", 3), 2, "unknown option --beem-size", "did you mean --beam-size?")
    refused(call("translate", trained, "--xyzzy"), 2, "unknown option --xyzzy", "attnkit translate --help lists")
    refused(call("translate", trained, "--beam-size", "many"), 2, "--beam-size", "valid int")
    refused(call("translate", trained, "--beam-size", 2, "--num-hypotheses", 3, "-i", "/dev/null"), 2, "beam_size")
    refused(call("translate"), 2, "RUN")
    refused(call("train"), 2, "no training data given", "--src a.en --tgt a.de")
    refused(call("train", "--src", "a.en"), 2, "data.src is given, but data.tgt is not", "--src a.en --tgt a.de")
    refused(call("train", "--preset"), 2, "'--preset' requires an argument", "help: write its value after it: --preset")
    refused(call("export", trained, "x"), 2, "Missing option '--to'. Choose from: ctranslate2, huggingface, marian,")
    refused(call("export", trained, "--to", "attnkit", "-o", "x"), 2, "-o", "it is an argument: attnkit export RUN DIR")
    (said, _) = refused(call("train", "--preset", "enormous"), 2, "'enormous' is not one of", "attnkit train --help")
    assert "Value error" not in said
    refused(call("train", "--preset", "tinny"), 2, "'tinny' is not one of", "help: did you mean tiny?")
    refused(call("train", "--preset", "finetune"), 2, "'finetune' is not one of", "help: did you mean adapt?")
    refused(call("finetune", "a", "--task", "classification"), 2, "did you mean text-classification?")
    refused(call("compare", "a", "b", "--ref", "c"), 2, "unknown option --ref", "did you mean --tgt?")
    refused(call("predict", trained, "a good film"), 2, "no such file: a good film", "standard input: echo TEXT | ")


@pytest.mark.parametrize(
    ("command", "option", "meant"),
    [
        ("train", "--epochs", "did you mean --max-epochs?"),
        ("train", "--max-update", "did you mean --max-steps?"),
        ("train", "--fp16", "did you mean --precision?"),
        ("train", "--save-dir", "did you mean --output?"),
        ("train", "--lr", "use --set optimization.learning_rate=VALUE"),
        ("train", "--batch-size", "use --set optimization.batch_tokens=VALUE (it counts tokens, not sentences)"),
        ("train", "--num-layers", "use --set model.encoder_layers=VALUE and model.decoder_layers=VALUE"),
        ("train", "--hidden-size", "use --set model.d_model=VALUE"),
        ("train", "--adapter", "use --set adapter.kind=VALUE"),
        ("pretrain-clm", "--lora-rank", "use --set adapter.rank=VALUE"),
        ("finetune", "--target-modules", "use --set adapter.maps=VALUE"),
        ("pretrain-mlm", "--num-layers", "use --set model.n_layers=VALUE"),
        ("pretrain-clm", "--block-size", "use --set data.sequence_length=VALUE"),
        ("pretrain-clm", "--patience", "use --set limits.early_stopping_patience=VALUE"),
        ("translate run", "--num-beams", "did you mean --beam-size?"),
        ("translate run", "--nbest", "did you mean --num-hypotheses?"),
        ("word2vec train", "--lr", "did you mean --alpha?"),
        ("word2vec train", "--vector-size", "did you mean --dim?"),
    ],
)
def test_options_of_other_tools_are_answered_with_ours(call: Call, command: str, option: str, meant: str) -> None:
    lines = refused(call(*command.split(), option, 3), 2, f"unknown option {option}")
    assert lines[-1] == f"help: {meant}"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("lr", "'optimization.learning_rate'"),
        ("optimization.epochs", "'limits.max_epochs'"),
        ("optimization.batch_size", "'optimization.batch_tokens'"),
        ("beams", "'decoding.beam_size'"),
        ("hidden_size", "'model.d_model'"),
        ("lora_alpha", "'adapter.alpha'"),
        ("model.num_layers", "'model.encoder_layers' or 'model.decoder_layers'"),
        ("training.warmup", "'optimization'"),
        ("dropout", "'model.dropout'"),
        ("decoding.max_len", "'decoding.max_length'"),  # its own section comes first
    ],
)
def test_keys_of_other_tools_are_answered_with_ours(
    call: Call, workshop: Any, tmp_path: Path, key: str, meant: str
) -> None:
    lines = refused(call(*workshop.arguments("transformer", tmp_path / "run"), "--set", f"{key}=3"), 2, "unknown key")
    assert lines[-1].startswith(f"help: did you mean {meant}?")


def test_every_key_in_the_table_of_other_tools_exists() -> None:
    options = {"quiet", "output", "overwrite", "max_new_tokens"}  # flags without a key
    trees = [{"model": {"kind": kind}} for kind in ("transformer", "rnn", "bert", "gpt", "")]
    configs = [kind.config for kind in TASKS.values()]
    for key in {key for keys in KEYS.values() for key in keys} - options:
        assert any(has_key(config, tree, key) for config in configs for tree in trees), key


def test_run_folders(call: Call, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("mine")
    for command in (["translate"], ["average"]):
        refused(call(*command, tmp_path / "missing"), 4, "no such run folder")
        refused(call(*command, tmp_path / "other"), 4, "is not a run folder")
    (tmp_path / "other/config.json").write_text("{}")
    help = f"help: import it first: attnkit import huggingface {tmp_path / 'other'} -o RUN"
    refused(call("translate", tmp_path / "other"), 4, "is not a run folder", help)
    refused(call("translate", trained / "checkpoints/step-12", "-i", "/dev/null"), 4, "is a checkpoint")
    refused(call("average", trained, "--last", 9), 4, "fewer than 9")


def test_bad_bytes_under_strict(call: Call, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"1 2\n\xff\n")
    strict = call("translate", trained, "-i", tmp_path / "text", "-o", tmp_path / "out", "--strict")
    refused(strict, 3, f"{tmp_path / 'text'}:2")
    assert not (tmp_path / "out").exists()
    code, out, err = call("translate", trained, "-i", tmp_path / "text")
    warnings = [line for line in err.splitlines() if "may be wrong" not in line]
    assert (code, out.count("\n"), len(warnings)) == (0, 2, 1)
    assert warnings[0].startswith("warning: ") and "text:2" in warnings[0]


def test_lines_that_do_not_pair_up(call: Call, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n")
    refused(call("score", trained, tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c"), 3, "2 lines", "1")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("place", [0, 3])
def test_debug_shows_the_traceback(call: Call, tmp_path: Path, place: int) -> None:
    arguments: list[Any] = ["translate", tmp_path / "missing", "--beam-size=2"]
    arguments.insert(place, "--debug")
    code, out, err = call(*arguments)
    assert (code, out) == (4, "")
    assert "Traceback" in err and err.splitlines()[-2].startswith("error: no such run folder")


def test_our_own_bugs_are_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    from attnkit.cli.main import report

    assert report(ZeroDivisionError("by\nzero")) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: this is a bug in attnkit: ZeroDivisionError: by zero",
        "help: run the command with --debug for a traceback",
    ]
    assert report(KeyboardInterrupt()) == 130


NAMES = [*([name] for name in COMMANDS), *([group, name] for group, table in GROUPS.items() for name in table)]
HELP = f"""
import contextlib, io, sys
from attnkit.cli.main import main
for arguments in [["--help"], ["--version"], []] + [[*names, "--help"] for names in {NAMES}]:
    sys.argv = ["attnkit", *arguments]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            main()
        except SystemExit as ended:
            assert ended.code == 0, arguments
    text = shown.getvalue()
    if arguments[1:]:
        assert "Example" in text and f"attnkit {{' '.join(arguments[:-1])}}" in text, arguments
    assert text.strip() and max(map(len, text.splitlines())) <= 100, arguments
heavy = sorted({{"torch", "tokenizers", "sacrebleu", "safetensors", "numpy"}} & set(sys.modules))
print(*heavy)
"""


def test_help_never_imports_torch() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "torch" not in done.stdout.split()


def test_importing_the_library_is_free_of_torch() -> None:
    code = "import sys, attnkit; attnkit.load, attnkit.train, attnkit.__version__; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("content", [gzip.compress(b"1 2\n" * 50)[:-9], b"1 2\n" * 50], ids=["cut off", "misnamed"])
@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--preset", "tiny", "--dry-run"]], ids=" ".join)
def test_damaged_text(call: Call, workshop: Any, tmp_path: Path, content: bytes, more: list[str]) -> None:
    (tmp_path / "a.gz").write_bytes(content)
    train = ["train", "--src", tmp_path / "a.gz", "--tgt", workshop.file("train.tgt"), "-o", tmp_path / "run"]
    refused(call(*train, *more), 3, "damaged or truncated", f"at {tmp_path / 'a.gz'}", "again")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("data.src=5", ["data.src: invalid value 5", "at data.src (--set data.src)"]),
        ("data.src=[5]", ["data.src.0: invalid value 5"]),
        ("limits=5", ["limits: invalid value 5", "at limits (--set limits)"]),
        ("evaluation=2", ["evaluation: invalid value 2", "at evaluation (--set evaluation)"]),
        ("evaluation=[[2]]", ["evaluation: invalid value [[2]]"]),
        ("vocabulary_files=5", ["vocabulary_files: invalid value 5", "at vocabulary_files (--set vocabulary_files)"]),
        ("optimization.kind=adamw", ["unknown key 'optimization.kind'"]),
        ("data.kind=x", ["unknown key 'data.kind'"]),
    ],
)
def test_values_of_another_type(call: Call, workshop: Any, tmp_path: Path, setting: str, words: list[str]) -> None:
    data = {side: [str(workshop.file(f"train.{side}"))] for side in ("src", "tgt")}
    (tmp_path / "c.yaml").write_text(json.dumps({"data": data, "evaluation": {"every_epochs": 1}}))
    refused(call("train", "--config", tmp_path / "c.yaml", "-o", tmp_path / "run", "--set", setting), 2, *words)


def test_a_weight_that_leaves_no_pair(call: Call, workshop: Any, tmp_path: Path) -> None:
    train = workshop.arguments("transformer", tmp_path / "run", limits__max_steps=1)
    code, out, err = call(*train, "--weight", "0.001")
    assert (code, out) == (3, "")
    assert err.splitlines()[-3] == "error: the epoch has no examples" and "--weight" in err


def test_text_that_can_be_read_only_once(call: Call, workshop: Any, tmp_path: Path) -> None:
    """A pipe that holds a line, under the name that a shell's <(...) would give it."""
    reading, writing = os.pipe()
    os.write(writing, b"1 2\n")
    os.close(writing)
    src, tgt, run, pipe = workshop.file("train.src"), workshop.file("train.tgt"), tmp_path / "run", f"/dev/fd/{reading}"
    for arguments in (
        ["vocab", pipe, "-o", tmp_path / "v.json"],
        ["check", src, pipe],
        ["check", src, tgt, "--train-src", src, "--train-tgt", pipe],
        ["train", "--src", pipe, "--tgt", tgt, "-o", run],
        ["train", "--src", src, "--tgt", pipe, "-o", run, "--preset", "tiny"],
        ["train", "--src", src, "--tgt", tgt, "--valid-src", src, "--valid-tgt", pipe, "-o", run],
    ):
        refused(call(*arguments), 2, f"{pipe} can be read only once", "write it to a file first")
    refused(call("train", "--src", "-", "--tgt", tgt, "-o", run), 2, "standard input can be read only once")
    os.close(reading)
    assert list(tmp_path.iterdir()) == []


def test_a_toy_corpus_replaces_no_other_text(call: Call, tmp_path: Path) -> None:
    make = ["toy-corpus", "reverse", "-o", tmp_path, "--pairs", 3, "--valid", 2, "--test", 2]
    for _ in ("new", "the same again"):
        assert call(*make)[0] == 0
    (tmp_path / "valid.src").write_text("mine\n")
    refused(call(*make), 2, f"{tmp_path / 'valid.src'} exists with different content", "--overwrite")
    assert (tmp_path / "valid.src").read_text() == "mine\n"
    assert call(*make, "--overwrite")[0] == 0
    assert (tmp_path / "valid.src").read_text() != "mine\n"


def test_a_folder_that_cannot_be_written_is_told_before_the_work(
    call: Call, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs this may write anywhere: the system's answer is turned round."""
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    vocab = ["vocab", workshop.file("train.src"), "-o", tmp_path / "v.json"]
    refused(call(*vocab), 5, "v.json: Permission denied", "choose another folder")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", 1], "require --against"),
        (["--test", "randomization"], "require --against"),
        (["--samples", 1000], "require --against"),
        (["--tokenize", "13a", "-m", "chrf", "-m", "ter"], "--tokenize requires the metric bleu"),
        (["--chrf-word-order", 2], "--chrf-word-order requires the metric chrf"),
        (["--lowercase", "-m", "ter"], "has no effect on TER"),
        (["--max-order", 4], "requires --formula notes"),
        (["--formula", "notes", "--tokenize", "13a"], "--formula notes takes one REF"),
    ],
)
def test_options_that_scoring_would_ignore(call: Call, workshop: Any, arguments: list[Any], words: str) -> None:
    lines = workshop.file("test.tgt")
    refused(call("score-bleu", lines, lines, *arguments), 2, words, "leave one of them out")


def test_options_that_sampling_would_ignore(call: Call, trained: Path) -> None:
    both = ("--sampling", "--beam-size", 5)
    refused(call("translate", trained, "-i", "/dev/null", *both), 2, "sampling has no beam", "at --beam-size")
    refused(call("translate", "no-such-run", *both), 2, "sampling has no beam")  # before anything is opened
    refused(call("translate", trained, "-i", "/dev/null", "--seed", 3), 2, "a seed needs sampling", "add --sampling")
    assert call("translate", trained, "-i", "/dev/null", "--sampling", "--seed", 3)[0] == 0


def test_mistakes_are_told_before_locks_and_before_torch(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    arguments = workshop.arguments("transformer", run)[1:]
    cases = (["--set", "lr=1"], ["--valid-src", "no", "--valid-tgt", "no"], ["--vocab", "no"], ["--tensorboard"])
    code = f"""
import sys
sys.modules["tensorboard"] = None
from pathlib import Path
from attnkit.io.lock import take_lock
from attnkit.cli.main import run
from attnkit.runtime.signals import Signals
lock = take_lock(Path({str(run)!r}))
for more in {[*cases, []]!r}:
    run(["train", *{list(map(str, arguments))!r}, *more], False, Signals())
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said[:4] == [
        "error: unknown key 'lr'", "error: no such file: no", "error: no such vocabulary file: no",
        "error: TensorBoard is not installed",
    ]  # fmt: skip
    assert "is in use by process" in said[4] and done.stdout == "False\n"


def test_options_that_other_commands_would_ignore(call: Call, workshop: Any, tmp_path: Path) -> None:
    pair = (workshop.file("test.src"), workshop.file("test.tgt"))
    refused(call("check", *pair, "--max-length", 256), 2, "--max-length counts tokens and requires --vocab")
    both = ("--vocab", tmp_path / "v.json", "--max-characters", 2000)
    refused(call("check", *pair, *both), 2, "--max-characters cannot be combined with --vocab")
    train = [*workshop.arguments("transformer", tmp_path / "run"), "--average", 1]
    refused(call(*train), 2, "at least two checkpoints", "at checkpoints.average (flag)")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("command", "defaults"), [("score-bleu", ["13a", "1000", "12345", "4"]), ("check", ["256"])])
def test_help_shows_defaults_of_options_that_need_others(call: Call, command: str, defaults: list[str]) -> None:
    shown = " ".join(call(command, "--help")[1].split())
    assert [value for value in defaults if f"[default: {value}]" not in shown] == []


def test_closed_standard_input(call: Call, workshop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    refused(call("score-bleu", "-", workshop.file("test.tgt")), 5, "cannot read standard input: it is closed")


@pytest.mark.parametrize(("redirect", "cause"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")])
def test_results_that_cannot_be_written(workshop: Any, redirect: str, cause: str) -> None:
    call = ["sh", "-c", f'"$0" -m attnkit check "$1" "$2" {redirect}', sys.executable]
    files = [workshop.file("test.src"), workshop.file("test.tgt")]
    done = subprocess.run([*call, *files], stderr=subprocess.PIPE, text=True, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 5
    assert lines[0] == f"error: cannot write standard output: {cause}" and len(lines) <= 3


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a b\n" * 20_000)
    command = [sys.executable, "-m", "attnkit", "score-bleu", "a", "a", "--formula", "notes", "--sentence"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        MemoryError(),
    ],
)
def test_want_of_memory_is_the_systems_fault(error: BaseException) -> None:
    lines, code = describe(error)
    assert code == 5 and lines[0] == "error: out of memory"


def test_a_map_that_fails_inside_a_library_is_the_systems_fault() -> None:
    failed = SystemError("returned a result with an exception set")
    failed.__cause__ = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    assert describe(failed)[1] == 5 and describe(SystemError("anything else"))[1] == 1
