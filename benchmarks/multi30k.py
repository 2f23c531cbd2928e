"""Train on Multi30k English-German from raw text and score the 2016 test set. Resumable: run it again to go on.

    python benchmarks/multi30k.py transformer --data DIR
    python benchmarks/multi30k.py rnn --data DIR

DIR holds train/val/test_2016_flickr in .en.gz and .de.gz. Work lies in benchmarks/.work, the figures are written to
benchmarks/results/multi30k-MODEL.json. Both conventions are reported: cased sacreBLEU (13a) on raw text, and that of
papers on this set: lower-cased, punctuation normalised and text tokenised as by Moses' scripts (sacremoses, which
`pip install -r benchmarks/multi30k.txt` installs), then counted without another tokenisation.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import resource
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CONFIGS = {"transformer": "multi30k.yaml", "rnn": "multi30k-rnn.yaml"}


def attnkit(*arguments: str | Path) -> None:
    """Run a command of the toolkit."""
    subprocess.run([sys.executable, "-m", "attnkit", *map(str, arguments)], check=True)


def as_in_papers(lines: list[str], language: str) -> list[str]:
    """Normalise punctuation, tokenise and lower-case, in the order and by the rules of Moses' scripts."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normalizer.normalize(line), return_str=True, escape=False).lower() for line in lines]


def scores(hypotheses: list[str], references: list[str]) -> dict[str, dict[str, object]]:
    """Score in both conventions with sacreBLEU."""
    import sacrebleu

    found: dict[str, dict[str, object]] = {}
    cased = sacrebleu.metrics.BLEU()
    score = cased.corpus_score(hypotheses, [references]).score
    found["cased, 13a"] = {"bleu": score, "signature": str(cased.get_signature())}
    plain = sacrebleu.metrics.BLEU(tokenize="none", force=True)
    lowered = plain.corpus_score(as_in_papers(hypotheses, "de"), [as_in_papers(references, "de")])
    found["lower-cased, normalised, tokenised"] = {"bleu": lowered.score, "signature": str(plain.get_signature())}
    chrf = sacrebleu.metrics.CHRF()
    found["chrF"] = {"chrf": chrf.corpus_score(hypotheses, [references]).score, "signature": str(chrf.get_signature())}
    return found


def count_parameters(run: Path) -> int:
    """Return the numbers in a run's weights."""
    from safetensors import safe_open

    path = run / "checkpoints" / (run / "best").read_text().strip() / "model.safetensors"
    with safe_open(path, "np") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118


def main() -> None:
    """Train, translate, score, write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=CONFIGS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--name", help="of the run and its result file")
    given = parser.parse_args()
    name = given.name or f"multi30k-{given.model}"
    run = HERE / ".work" / name
    run.parent.mkdir(exist_ok=True)
    splits = ("train", "val", "test_2016_flickr")
    text = {f"{split}.{side}": given.data / f"{split}.{side}.gz" for split in splits for side in ("en", "de")}
    attnkit(
        "train", "--config", HERE.parent / "examples" / CONFIGS[given.model], "-o", run,
        "--src", text["train.en"], "--tgt", text["train.de"],
        "--valid-src", text["val.en"], "--valid-tgt", text["val.de"],
        *(part for value in given.sets for part in ("--set", value)),
    )  # fmt: skip
    # A run that is continued by a second call has several peaks: the highest counts.
    peaks = run.parent / f"{name}.peak"
    peak = max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, int(peaks.read_text()) if peaks.exists() else 0)
    peaks.write_text(str(peak))
    output = run.parent / f"{name}.test.de"
    attnkit("translate", run, "-i", text["test_2016_flickr.en"], "-o", output, "--beam-size", "5")
    references = gzip.decompress(text["test_2016_flickr.de"].read_bytes()).decode().split("\n")[:1000]
    hypotheses = output.read_text(encoding="utf-8").split("\n")[:1000]
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    result = {
        "command": " ".join(sys.argv),
        "scores": scores(hypotheses, references),
        "parameters": count_parameters(run),
        "minutes of training": timings[-1]["minutes"],
        "tokens": timings[-1]["tokens"],
        "peak memory of training, MB": round(peak / 1024),
    }
    (HERE / "results" / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
