"""A shifted corpus repaired by `clean --realign`: does it train to the BLEU of the right one?

    PYTHONPATH=src python benchmarks/realigned_corpus.py

12,000 pairs of the toy English-French corpus, three times: right; with one target line missing in the middle and the
last source line cut off, so that half of the pairs are off by one; and that corpus repaired. The right one lacks the
two pairs that cannot be repaired. Each trains one small Transformer with the same settings, seed and steps, in a minute
or two on two cores; if the repaired files are the right ones to the byte, training is the same too and is not done
again. BLEU is that of 1,000 test sentences. Resumable: run it again to go on. Figures go to
benchmarks/results/realigned_corpus.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from peers import WORK as WORK_FOLDER
from peers import machine

import attnkit
from attnkit.metrics.bleu import corpus_bleu

HERE = Path(__file__).parent
WORK = WORK_FOLDER / "realigned_corpus"
RESULT = HERE / "results" / "realigned_corpus.json"
PAIRS = 12_000
SETTINGS = ("model.d_model=128", "model.d_ff=512", "model.decoder_layers=1")
MIDDLE = PAIRS // 2  # line that is missing, from 0
FILES = ("train.en", "train.fr")
Lines = list[str]


def call(*arguments: str | Path) -> None:
    """Run a command of the toolkit."""
    subprocess.run([sys.executable, "-m", "attnkit", *map(str, arguments)], check=True)


def read(path: Path) -> Lines:
    """Return the lines of a file."""
    return path.read_text().split("\n")[:-1]


def write(folder: Path, src: Lines, tgt: Lines) -> None:
    """Write both sides of a corpus."""
    folder.mkdir(exist_ok=True)
    for name, lines in zip(FILES, (src, tgt), strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def main() -> None:
    """Make the corpora, train on each, write the result."""
    toy = WORK / "toy"
    if not toy.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        call("toy-corpus", "english-french", "-o", toy, "--pairs", str(PAIRS), "--seed", "7")
    src, tgt = read(toy / "train.en"), read(toy / "train.fr")
    write(WORK / "right", *(side[:MIDDLE] + side[MIDDLE + 1 : -1] for side in (src, tgt)))
    write(WORK / "shifted", src[:-1], tgt[:MIDDLE] + tgt[MIDDLE + 1 :])
    shifted = WORK / "shifted"
    call("clean", shifted / "train.en", shifted / "train.fr", "-o", WORK / "repaired", "--realign", "--overwrite")
    right = set(zip(src, tgt, strict=True))
    figures: dict[str, dict[str, object]] = {"settings": {"machine": machine(), "line missing": MIDDLE + 1}}
    for name in ("right", "repaired", "shifted"):
        corpus, run = WORK / name, WORK / f"run-{name}"
        same = all((corpus / side).read_bytes() == (WORK / "right" / side).read_bytes() for side in FILES)
        if same and name != "right":
            figures[name] = {**figures["right"], "same files as the right corpus": True}
            continue
        call(
            "train", "--config", HERE.parent / "examples" / "english-french.yaml", "-o", run, "--accept-data",
            "--src", corpus / "train.en", "--tgt", corpus / "train.fr",
            "--valid-src", toy / "valid.en", "--valid-tgt", toy / "valid.fr",
            *(word for setting in SETTINGS for word in ("--set", setting)),
        )  # fmt: skip
        answers = [one.text for one in attnkit.load(run).translate(read(toy / "test.en"))]
        pairs = list(zip(read(corpus / "train.en"), read(corpus / "train.fr"), strict=True))
        figures[name] = {
            "pairs": len(pairs),
            "wrong pairs": sum(pair not in right for pair in pairs),
            "BLEU": round(corpus_bleu(answers, [read(toy / "test.fr")]).score, 2),
        }
        print(name, json.dumps(figures[name]), flush=True)
    RESULT.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
