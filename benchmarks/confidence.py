"""Confidence of translations: calibration error, and the worst tenth that it names.

    PYTHONPATH=src python benchmarks/confidence.py RUN FOLDER

RUN translates English of Multi30k to German; FOLDER has val.en, val.de, test_2016_flickr.en and .de. The curve is
learned on val, as training does at its end, and judged on test_2016_flickr: a translation is acceptable if its
sentence chrF is at least 60. Lines of equal confidence count with their mean chrF. The same curve is also judged on
greedy translations and on those of int8 weights. Written to benchmarks/results/confidence.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.metrics.bleu import build_metric, corpus_bleu, score_sentences
from attnkit.metrics.calibration import calibration_error
from attnkit.tasks.translation.confidence import ACCEPTABLE, learn_confidence, translate_development_set
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.parallel import read_parallel

RESULTS = Path(__file__).parent / "results" / "confidence.json"
WORST = 0.1  #: share of the lines that are named


def mean_of_worst(confidence: NDArray[np.float64], chrf: NDArray[np.float64], n: int) -> float:
    """Return the expected chrF of the n lines of the lowest confidence."""
    limit = np.sort(confidence)[n - 1]
    below, equal = chrf[confidence < limit], chrf[confidence == limit]
    return float((below.sum() + (n - len(below)) * equal.mean()) / n)


def area_under_curve(confidence: NDArray[np.float64], good: NDArray[np.bool_]) -> float:
    """Return how often an acceptable line has more confidence than another; ties count half."""
    first, second = confidence[good][:, None], confidence[~good][None]  # (G, 1), (1, N - G)
    return float(((first > second) + 0.5 * (first == second)).mean())


def main() -> None:
    """Learn and judge; write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    texts = {
        name: list(read_parallel(given.folder / f"{name}.en", given.folder / f"{name}.de"))
        for name in ("val", "test_2016_flickr")
    }
    pipeline = load_translator([given.run], threads=given.threads)
    lines = {}
    for name, pairs in texts.items():
        lines[name] = translate_development_set(pipeline, [src for src, _ in pairs], [""] * len(pairs))
    judged = "test_2016_flickr"
    sources, references = zip(*texts[judged], strict=True)
    others = {}
    for setting, changes in (("beam_size=1", {"beam_size": 1}), ("precision=int8", {})):
        own = load_translator([given.run], threads=given.threads, precision="float32" if changes else "int8")
        own.search = own.configure({**changes})
        others[setting] = translate_development_set(own, sources, [""] * len(sources))
    weights = fingerprint_of(pipeline.runs[0].files)
    curve = learn_confidence(lines["val"], [tgt for _, tgt in texts["val"]], weights)
    assert curve is not None, "the development set is large enough"
    results: dict[str, object] = {"knots": len(curve.scores)}
    for name, pairs in texts.items():
        outputs, references = [line.outputs[0] for line in lines[name]], [tgt for _, tgt in pairs]
        hypotheses = [output.text for output in outputs]
        chrf = np.array(score_sentences(build_metric("chrf", by_sentence=True), hypotheses, [references]))
        confidence = np.array([curve.probability(output.mean_log_prob) for output in outputs])
        good = chrf >= ACCEPTABLE
        n = round(WORST * len(pairs))
        results[name] = {
            "lines": len(pairs),
            "bleu": corpus_bleu(hypotheses, [references]).score,
            "acceptable": float(good.mean()),
            "mean_confidence": float(confidence.mean()),
            "calibration_error": calibration_error(confidence, good),
            "area_under_curve": area_under_curve(confidence, good),
            "mean_chrf": float(chrf.mean()),
            "mean_chrf_of_worst": mean_of_worst(confidence, chrf, n),
            "mean_chrf_of_best": -mean_of_worst(-confidence, -chrf, n),
            "mean_chrf_of_the_truly_worst": float(np.sort(chrf)[:n].mean()),
        }
    metric = build_metric("chrf", by_sentence=True)
    results[f"{judged}, other settings"] = {
        setting: calibration_error(
            [curve.probability(line.outputs[0].mean_log_prob) for line in found],
            np.array(score_sentences(metric, [line.outputs[0].text for line in found], [references])) >= ACCEPTABLE,
        )
        for setting, found in others.items()
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
