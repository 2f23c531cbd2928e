"""``attnkit word2vec train`` from end to end: flags, files, messages, and what is never imported."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., tuple[int, str, str]]
LINES = [f"the {animal} {verb} in the {place} all day" for animal in ("dog", "cat", "owl", "fox")
         for verb in ("sleeps", "runs", "eats") for place in ("house", "garden", "wood")]  # fmt: skip
TINY = ("--dim", 20, "--window", 2, "--negative", 2, "--epochs", 2, "--threads", 1)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES * 8))
    return path


def test_text_becomes_vectors(call: Call, text: Path, tmp_path: Path) -> None:
    run = tmp_path / "vectors"
    code, out, err = call("word2vec", "train", text, "-o", run, *TINY, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["metrics"]["n_words"], found["metrics"]["dim"], found["already"]) == (14, 20, False)
    assert "words: 2,304 in the text, 14 with a vector" in err
    code, out, err = call("word2vec", "train", text, "-o", run, *TINY)
    assert code == 0 and f"{run} is finished: " in out
    code, out, err = call("word2vec", "train", text, "-o", run, *TINY, "--dim", 8, "--seed", 3)
    assert (code, out) == (2, "") and "dim: 20 -> 8; seed: 1 -> 3" in err
    assert call("verify", run)[0] == 0
    code, _, err = call("translate", run, "-i", text)
    assert code == 4 and "help: use attnkit word2vec similar" in err
    code, out, _ = call("word2vec", "train", text, "-o", tmp_path / "paths", *TINY, "--loss", "hierarchical")
    assert code == 0 and out.rstrip().endswith(f"word2vec similar {tmp_path / 'paths'}")
    card = (run / "README.md").read_text()
    assert "Word vectors of dimension 20 (skip-gram, 2 negatives)" in card and f"- {text}" in card


def test_compressed_text_and_standard_input_give_the_same(
    call: Call, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))
    for name, path in (("a", text), ("b", packed), ("c", "-")):
        code, _, err = call("word2vec", "train", path, "-o", tmp_path / name, *TINY)
        assert code == 0, err
    a, b, c = (next((tmp_path / name).rglob("model.safetensors")).read_bytes() for name in "abc")
    assert a == b == c
    # What was encoded of it is kept: nobody has to send it again.
    assert "finished" in call("word2vec", "train", "-", "-o", tmp_path / "c", *TINY)[1]


def test_where_each_value_comes_from(call: Call, text: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("method: cbow\ncontext: sum\nwindow: 4\nsubwords: {min_n: 2}\n")
    arguments = (text, "-o", tmp_path / "run", "-c", file, "--set", "window=6", "--max-n", 4, "--dry-run", "--json")
    code, out, err = call("word2vec", "train", *arguments)
    assert code == 0, err
    found, plan = json.loads(out)["configuration"], json.loads(out)["plan"]
    assert (plan["n_examples"], plan["note"]) == (2304, "14 words get a vector (counted in all text)")
    assert plan["memory"] > 4 * 2_000_014 * 112 and plan["disk"] > 4 * 2_000_014 * 100
    expected = {
        "method": ("cbow", str(file)),
        "context": ("sum", str(file)),
        "alpha": (0.05, "method cbow"),
        "window": (6, "--set window"),
        "subwords.min_n": (2, str(file)),
        "subwords.max_n": (4, "flag"),
        "subwords.buckets": (2_000_000, "default"),
        "data.files": ([str(text)], "flag"),
    }
    assert {key: (found[key]["value"], found[key]["origin"]) for key in expected} == expected
    assert not (tmp_path / "run").exists()


def test_a_plan_for_people_fits_a_terminal(call: Call, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = call("word2vec", "train", text, "--dry-run")
    assert code == 0 and out.endswith("(within a factor of three)\n14 words get a vector (counted in all text)\n"), err
    defaults, chosen, plan = out.split("\n\n")
    assert max(map(len, plan.splitlines())) < 80
    # What was chosen is beside the estimate, where a terminal shows it.
    assert defaults.startswith("defaults:\n") and chosen.startswith("chosen:\n")
    rows = {"default": defaults.splitlines()[1:], "flag": chosen.splitlines()[1:]}
    assert all(row.endswith("  default") for row in rows["default"]) and len(rows["default"]) > 10
    assert not any(row.endswith("  default") for row in rows["flag"])
    assert [row.split()[0] for row in rows["flag"] if row.endswith("  flag")] == ["task", "data.files"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))
    code, out, _ = call("word2vec", "train", "-", "--dry-run")
    assert code == 0 and "no estimate: the input can be read only once" in out and sys.stdin.buffer.tell() == 0
    code, _, err = call("word2vec", "train", text, "--negative", 14, "--dry-run")
    assert code == 2 and "exceeds the 13 other words" in err


def test_a_flag_for_subwords_leaves_what_a_file_says_of_them(call: Call, text: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    for said, min_n in (("{min_n: 2}", 2), ("null", 3)):
        file.write_text(f"subwords: {said}\n")
        for more in ([], ["--buckets", 50]):
            code, out, err = call("word2vec", "train", text, "-c", file, "--subwords", *more, "--dry-run", "--json")
            assert code == 0, err
            found = json.loads(out)["configuration"]
            assert found["subwords.min_n"]["value"] == min_n
            assert found["subwords.buckets"]["value"] == (50 if more else 2_000_000)


WRONG: dict[str, tuple[list[Any], int, str]] = {
    "no text": ([], 2, "no training data given"),
    "no such file": (["none.txt"], 2, "none.txt"),
    "dim 0": (["text.txt", "--dim", 0], 2, "dim: invalid value 0"),
    "context of skip-gram": (["text.txt", "--context", "sum"], 2, "leave context out\n  at context (flag)"),
    "subwords of glove": (["text.txt", "--method", "glove", "--subwords"], 2, "otherwise\n  at subwords (flag)"),
    "exact CBOW": (["text.txt", "--method", "cbow", "--exact"], 2, "leave exact out\n  at exact (flag)"),
    "rates that rise": (["text.txt", "--alpha", 0.01, "--min-alpha", 0.02], 2, "alpha=0.01\n  at min_alpha (flag)"),
    "n-grams that shrink": (["text.txt", "--min-n", 5, "--max-n", 4], 2, "min_n=5 is more than max_n=4"),
    "many negatives": (["text.txt", "--negative", 14], 2, "negative=14 exceeds the 13 other words"),
    "only rare words": (["text.txt", "--min-count", 10_000], 3, "no word occurs at least 10,000 times"),
    "one word": (["text.txt", "--max-vocab", 1], 2, "exceeds the 0 other words"),
    "a key that is none": (["text.txt", "--set", "windw=3"], 2, "did you mean 'window'"),
    "bytes": (["bytes.txt"], 3, "bytes.txt:2"),
    "no spaces": (["dense.txt"], 3, "attnkit vocab"),
    "stdin twice": (["-", "-"], 2, "standard input can be read only once"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_leaves_no_folder(
    case: str, call: Call, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, code, words = WRONG[case]
    monkeypatch.chdir(tmp_path)
    Path("bytes.txt").write_bytes(b"a b c\nd \xff e\n")
    Path("dense.txt").write_bytes("彼は走る。".encode() * 2000)
    found, out, err = call("word2vec", "train", *arguments, "-o", "deep/run")
    assert (found, out) == (code, ""), err
    assert words in err and len(err[err.index("error:") :].splitlines()) <= 3
    assert not Path("deep").exists()


def test_training_imports_no_torch(text: Path, tmp_path: Path) -> None:
    arguments = ["word2vec", "train", str(text), "-o", str(tmp_path / "run"), *map(str, TINY)]
    code = f"""
import sys
from attnkit.cli.main import main
sys.argv = ["attnkit", *{arguments!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_an_unknown_key_is_told_where_to_look(call: Call, text: Path) -> None:
    _, _, err = call("word2vec", "train", text, "--set", "colour=red")
    assert "unknown key 'colour'" in err and "the same command with --dry-run shows all keys" in err
    assert call("word2vec", "train", text, "--dry-run")[0] == 0
