"""The commands of auto-encoders and classifiers from end to end: a row out for each row in, and their exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

Call = Callable[..., tuple[int, str, str]]
SETTINGS = ("precision=float32", "device=cpu", "threads=1", "limits.max_steps=6", "evaluation.n_samples=1")


@pytest.fixture(scope="module")
def runs(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tasks")
    for name in ("lines", "vectors", "documents"):
        workshop.train(workshop.configure_task(name, limits__max_steps=6), folder / name)
    return {name: folder / name for name in ("lines", "vectors", "documents")}


TEXT = "1 2 3\n\n  \nüñí 4\r\n9 9 9 9 9 9\n" + "7" * 500 + "\nlast"
ODD = b"1 2\xff 3\n4\n"


def test_the_whole_way_of_an_autoencoder(call: Call, workshop: Any, tmp_path: Path) -> None:
    data = ["--task", "autoencode", "--data", workshop.file("train.src"), "--valid-data", workshop.file("valid.src")]
    sets = [word for setting in (*SETTINGS, "model.d_code=4", "noise.word_dropout=0.1") for word in ("--set", setting)]
    train = ["train", *data, *sets, "-o", tmp_path / "run"]
    code, out, err = call(*train, "--dry-run", "--json")
    shown = json.loads(out)
    assert code == 0 and shown["plan"]["unit"] == "lines" and shown["plan"]["n_examples"] == 160
    assert shown["configuration"]["noise.word_dropout"]["origin"] == "--set noise.word_dropout"
    code, out, err = call(*train)
    assert code == 0 and "6 steps" in out and "embed" in out and "unigram loss" in out
    assert "rows: " in err and "building the vocabulary" in err
    import safetensors.torch

    tensors = safetensors.torch.load_file(tmp_path / "run/checkpoints/step-6/model.safetensors")
    assert shown["plan"]["n_parameters"] == sum(tensor.numel() for tensor in tensors.values())
    code, out, _ = call(*train)
    assert code == 0 and "is finished" in out
    assert call("verify", tmp_path / "run")[0] == 0
    code, out, err = call("embed", tmp_path / "run", workshop.file("valid.src"))
    rows = [list(map(float, line.split("\t"))) for line in out.splitlines()]
    assert code == 0 and err == "" and len(rows) == 8 and {len(row) for row in rows} == {4}


@pytest.mark.parametrize("reconstruct", [False, True])
def test_every_line_gets_a_row(call: Call, runs: dict[str, Path], tmp_path: Path, reconstruct: bool) -> None:
    path = tmp_path / "odd.txt"
    path.write_bytes(TEXT.encode())
    code, out, err = call("embed", runs["lines"], path, *(["--reconstruct"] if reconstruct else []))
    lines = out.split("\n")[:-1]
    assert code == 0 and len(lines) == 7
    if reconstruct:
        assert lines[1] == lines[2] == "" and "7 lines, 2 blank, 0.0 % of the others reconstructed exactly" in err
    else:
        assert {len(line.split("\t")) for line in lines} == {8}
    code, out, _ = call("embed", runs["lines"], path, "--json", *(["--reconstruct"] if reconstruct else []))
    found = [json.loads(line) for line in out.splitlines()]
    if reconstruct:
        assert found.pop() == {"lines": 7, "blank": 2, "exact": 0.0}
    assert [row["text"] for row in found] == ["1 2 3", "", "  ", "üñí 4", "9 9 9 9 9 9", "7" * 500, "last"]
    assert all(("reconstruction" in row) == reconstruct for row in found)


def test_all_formats_hold_the_same_numbers(call: Call, runs: dict[str, Path], workshop: Any, tmp_path: Path) -> None:
    source = workshop.file("valid.src")
    for name in ("codes.npy", "codes.csv", "codes.tsv"):
        assert call("embed", runs["lines"], source, "-o", tmp_path / name) == (0, "", "")
    codes = np.load(tmp_path / "codes.npy", allow_pickle=False)
    assert codes.shape == (8, 8) and codes.dtype == np.float32 and abs(codes).max() <= 1
    assert (np.lib.format.open_memmap(tmp_path / "codes.npy", mode="r") == codes).all()
    assert (np.loadtxt(tmp_path / "codes.csv", delimiter=",", dtype=np.float32) == codes).all()
    assert (np.loadtxt(tmp_path / "codes.tsv", delimiter="\t", dtype=np.float32) == codes).all()
    _, out, _ = call("embed", runs["lines"], source, source)
    assert len(out.splitlines()) == 16
    # A row depends on its own line alone.
    lines = source.read_text().splitlines()
    (tmp_path / "one.txt").write_text(lines[3] + "\n")
    alone = np.array(call("embed", runs["lines"], tmp_path / "one.txt")[1].split("\t"), np.float32)
    np.testing.assert_allclose(alone, codes[3], atol=1e-5)


def test_vectors_from_npy_csv_and_standard_input(
    call: Call, runs: dict[str, Path], workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = np.load(workshop.file("vectors.npy"), allow_pickle=False)[:20]
    np.save(tmp_path / "a.npy", vectors)
    text = "".join(",".join(format(x, ".9g") for x in row) + "\n" for row in vectors.tolist())
    (tmp_path / "a.csv").write_text("a,b,c,d,e,f\n" + text)
    outputs = [call("embed", runs["vectors"], tmp_path / name)[1] for name in ("a.npy", "a.csv")]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))
    outputs.append(call("embed", runs["vectors"])[1])
    assert outputs[0] == outputs[1] == outputs[2] and len(outputs[0].splitlines()) == 20
    code, _, err = call("embed", runs["vectors"], tmp_path / "a.npy", "--reconstruct", "-o", tmp_path / "back.npy")
    back = np.load(tmp_path / "back.npy", allow_pickle=False)
    error = float(np.square(back - vectors).mean())
    assert code == 0 and back.shape == vectors.shape and f"mean squared error {error:.3g}"[:-1] in err
    assert "explained" in err
    totals = json.loads(call("embed", runs["vectors"], tmp_path / "a.npy", "--reconstruct", "--summary", "--json")[1])
    assert totals["vectors"] == 20 and totals["error"] == pytest.approx(error, rel=1e-5)
    assert totals["explained"] == pytest.approx(1 - totals["error"] / totals["mean_error"])
    code, out, err = call("embed", runs["vectors"], tmp_path / "a.npy", "--reconstruct", "--summary")
    assert (code, err, out.count("\n")) == (0, "", 1) and out.startswith("20 vectors, mean squared error ")


def test_a_pipe_takes_text_and_no_npy(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    pipe = tmp_path / "codes.npy"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "a.txt").write_text("a dog runs\n")
    try:
        code, _, err = call("embed", runs["lines"], tmp_path / "a.txt", "-o", pipe)
        assert code == 2 and "cannot be written to a pipe" in err and not os.read(reader, 1)
    finally:
        os.close(reader)


def test_no_rows_are_no_rows_of_codes(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    assert call("embed", runs["lines"], tmp_path / "empty.txt", "-o", tmp_path / "z.npy") == (0, "", "")
    assert np.load(tmp_path / "z.npy", allow_pickle=False).shape == (0, 8)
    back = ["--reconstruct", "-o", tmp_path / "back.npy"]
    assert call("embed", runs["lines"], tmp_path / "empty.txt", *back)[0] == 2, "as with rows"
    code, out, _ = call("embed", runs["lines"], tmp_path / "empty.txt", "--reconstruct", "--json")
    assert code == 0 and json.loads(out) == {"lines": 0, "blank": 0, "exact": 0.0}


def test_every_document_gets_a_label(call: Call, runs: dict[str, Path], workshop: Any, tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_bytes(TEXT.encode())
    code, out, err = call("predict", runs["documents"], path)
    assert (
        code == 0
        and len(out.splitlines()) == 7
        and {line.split()[0] for line in out.splitlines()} <= {"good", "bad", "mixed"}
    )
    assert "carriage return" in err
    code, out, _ = call("predict", runs["documents"], path, "--json", "--all")
    found = [json.loads(line) for line in out.splitlines()]
    assert len(found) == 7 and found[1]["sentences"] == [] and len(found[0]["sentences"]) == 1
    for row in found:
        assert set(row["all"]) == {"good", "bad", "mixed"}
        assert row["label"] == max(row["all"], key=row["all"].get)


def test_labeled_documents_are_scored(call: Call, runs: dict[str, Path], workshop: Any, tmp_path: Path) -> None:
    source = workshop.file("documents.tsv")
    code, out, err = call("predict", runs["documents"], source, "--gold")
    found = [line.split("\t")[0] for line in out.splitlines()]
    expected = [line.split("\t")[1] for line in source.read_text().splitlines()]
    right = sum(a == b for a, b in zip(found, expected, strict=True))
    assert code == 0 and f"160 examples, accuracy {100 * right / 160:.2f} %, macro F1 " in err
    code, out, err = call("predict", runs["documents"], source, "--gold", "--json")
    *rows, totals = map(json.loads, out.splitlines())
    assert len(rows) == totals["examples"] == 160 and totals["accuracy"] == pytest.approx(100 * right / 160)
    code, out, summed = call("predict", runs["documents"], source, "--gold", "--summary")
    assert (code, summed) == (0, "") and out.startswith("160 examples, accuracy ")
    assert json.loads(call("predict", runs["documents"], source, "--gold", "--summary", "--json")[1]) == totals
    (tmp_path / "empty.tsv").touch()
    code, out, _ = call("predict", runs["documents"], tmp_path / "empty.tsv", "--gold", "--json")
    assert code == 0 and json.loads(out) == {"examples": 0}
    (tmp_path / "a.tsv").write_text("some text\tunheard\n")
    code, out, err = call("predict", runs["documents"], tmp_path / "a.tsv", "--gold")
    assert code == 0 and "gold labels unknown to the model: 'unheard' (1 gold labels, counted as errors)" in err


def test_documents_that_are_not_read_to_the_end_are_told(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    long, short = "A film. " * 101, "A film. " * 100
    (tmp_path / "a.txt").write_text(f"{long}\n{short}\n{long}\n")
    code, out, err = call("predict", runs["documents"], tmp_path / "a.txt")
    assert (code, out.count("\n")) == (0, 3)
    assert err == "warning: 2 documents have more than 100 sentences; the rest was truncated\n"
    (tmp_path / "a.tsv").write_text(f"{long}\tgood\n")
    assert "1 document has more than" in call("predict", runs["documents"], tmp_path / "a.tsv", "--gold")[2]
    code, out, err = call("attend", runs["documents"], long, "--json", "--device", "cpu")
    assert code == 0 and err == "warning: 1 document has more than 100 sentences; the rest was truncated\n"


def test_odd_bytes_are_replaced_or_refused(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_bytes(ODD)
    for command, run in (("embed", "lines"), ("predict", "documents")):
        code, out, err = call(command, runs[run], tmp_path / "odd.txt")
        assert code == 0 and len(out.splitlines()) == 2 and "not UTF-8" in err
        code, out, err = call(command, runs[run], tmp_path / "odd.txt", "--strict")
        assert code == 3 and "0xFF is not UTF-8" in err


@pytest.mark.parametrize("command", ["translate", "embed", "predict"])
def test_each_command_takes_its_own_runs_alone(call: Call, runs: dict[str, Path], tmp_path: Path, command: str) -> None:
    own = {"translate": "translation", "embed": "lines", "predict": "documents"}[command]
    (tmp_path / "text").write_text("1 2\n")
    given = ["-i", tmp_path / "text"] if command == "translate" else [tmp_path / "text"]
    for name, run in runs.items():
        if name == own or (command == "embed" and name == "vectors"):
            continue
        code, out, err = call(command, run, *given)
        kind, other = ("text-classification", "predict") if name == "documents" else ("autoencode", "embed")
        assert (code, out) == (4, "") and re.search(f"runs? of task '{kind}'", err) and f"use attnkit {other}" in err


def test_a_translation_run_is_refused(call: Call, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("1 2\n")
    for command, noun in (("embed", "not an auto-encoder"), ("predict", "predict does not support runs of task")):
        code, _, err = call(command, trained, tmp_path / "text")
        assert code == 4 and noun in err and "use attnkit translate" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["train", "--task", "autoencode"], 2, "give text or vectors: --data FILE"),
        (["train", "--task", "text-classification", "--src", "{vectors}"], 2, "give documents and labels: --data"),
        (["train", "--task", "autoencode", "--data", "{missing}"], 2, "no such file"),
        (["train", "--task", "autoencode", "--data", "-"], 2, "read only once"),
        (["train", "--task", "autoencode", "--data", "{objects}"], 3, "Python objects"),
        (["train", "--task", "autoencode", "--data", "{nan}"], 3, "not finite"),
        (["train", "--task", "text-classification", "--model", "rnn", "--data", "{documents}"], 2, "model.kind"),
        (["train", "--task", "text-classification", "--data", "{vectors}"], 3, ""),
        (["embed", "{missing}", "{documents}"], 4, "no such run folder"),
        (["embed", "RUN vectors", "{wide}"], 3, "7 numbers, not 6"),
        (["embed", "RUN vectors", "{nan}"], 3, "not finite"),
        (["embed", "RUN vectors", "{documents}"], 3, "is not a number"),
        (["embed", "RUN lines", "{missing}"], 2, "no such file"),
        (["embed", "RUN lines", "{vectors}"], 3, "a vector file, but this run reads text"),
        (["embed", "RUN lines", "{documents}", "--summary"], 2, "add --reconstruct"),
        (["embed", "RUN vectors", "{wide}", "--reconstruct", "--summary", "-o", "x.npy"], 2, "cannot store totals"),
        (
            ["embed", "RUN vectors", "{wide}", "--reconstruct", "--summary", "-o", "x.txt"],
            2,
            "add --json, or leave out",
        ),
        (["predict", "RUN documents", "{documents}", "--summary"], 2, "add --gold"),
        (["predict", "RUN documents", "{missing}", "--gold"], 2, "no such file"),
        (["train", "--data", "{documents}", "--model", "han"], 2, "--data needs --task autoencode or"),
        (
            ["train", "--task", "text-classification", "--data", "{plain}"],
            3,
            "add a tab and the label after the document",
        ),
        (["train", "--task", "text-classification", "--data", "{tabs}"], 3, "remove tabs from the documents"),
        (["embed", "RUN lines", "{documents}", "-o", "x.npy", "--json"], 2, "cannot store JSON"),
        (["embed", "RUN lines", "{documents}", "-o", "{out}.npy", "--reconstruct"], 2, ".npy cannot store text"),
        (["embed", "RUN lines", "{documents}", "-o", "{documents}"], 2, "is also an input file"),
        (["predict", "RUN documents", "{missing}"], 2, "no such file"),
    ],
)
def test_what_is_refused_and_how(
    call: Call, runs: dict[str, Path], workshop: Any, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((3, 7)))
    np.save(tmp_path / "nan.npy", np.full((3, 6), np.nan))
    np.save(tmp_path / "objects.npy", np.array([[{}, 1.0]] * 3, object), allow_pickle=True)
    (tmp_path / "plain.tsv").write_text("a film\n")
    (tmp_path / "tabs.tsv").write_text("a\tfilm\tgood\n")
    places = {
        "{plain}": tmp_path / "plain.tsv",
        "{tabs}": tmp_path / "tabs.tsv",
        "{vectors}": workshop.file("vectors.npy"),
        "{documents}": workshop.file("documents.tsv"),
        "{missing}": tmp_path / "none.npy",
        "{wide}": tmp_path / "wide.npy",
        "{nan}": tmp_path / "nan.npy",
        "{objects}": tmp_path / "objects.npy",
        "{out}.npy": tmp_path / "out.npy",
        **{f"RUN {name}": path for name, path in runs.items()},
    }
    words = [places.get(word, word) for word in arguments]
    if words[0] == "train":
        words += ["-o", tmp_path / "run"]
    found, out, err = call(*words)
    assert (found, out) == (code, "") and said in err, err
    assert err.count("\n") <= 3 or words[0] == "train"
    assert not (tmp_path / "out.npy").exists()
