"""Confidence of translations: learned after training, kept in the run, told per line, hostile files refused."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

import attnkit
from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.checkpoints.logs import parse_line, record_line
from attnkit.engine.task import EvaluationCancelled
from attnkit.engine.trainer import TrainRequest, train
from attnkit.errors import RunError, StoppedError
from attnkit.quality.confidence import ConfidenceCurve
from attnkit.tasks.translation.confidence import add_confidence, learn_confidence, translate_development_set
from attnkit.tasks.translation.config import MIN_CONFIDENCE_LINES
from attnkit.tasks.translation.loading import CONFIDENCE_NAME, open_run, read_confidence
from attnkit.tasks.translation.translator import load_translator

Call = Callable[..., tuple[int, str, str]]
CURVE = {"weights": "0" * 64, "n_lines": 300, "acceptable": 60.0, "scores": [-2.0, -1.0], "probabilities": [0.1, 0.9]}


def write_pairs(folder: Path, name: str, n: int) -> None:
    """Write lines of which those with an x have one translation, and the others a drawn one."""
    draw, pairs = random.Random(name), []
    for _ in range(n):
        source = "".join(draw.choices("abcd", k=6))
        pairs.append((f"x{source}", "efghijkl") if draw.random() < 0.5 else (source, "".join(draw.choices("bcd", k=8))))
    for side, ending in enumerate(("src", "tgt")):
        (folder / f"{name}.{ending}").write_text("".join(f"{pair[side]}\n" for pair in pairs))


def settings(workshop: Any, folder: Path, **changes: Any) -> Any:
    config = workshop.configure(**changes)
    files = {
        f"{prefix}{side}": (str(folder / f"{name}.{side}"),)
        for prefix, name in (("", "train"), ("valid_", "valid"))
        for side in ("src", "tgt")
    }
    return config.model_copy(update={"data": config.data.model_copy(update=files)})


@pytest.fixture(scope="module")
def sure(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with enough development lines; about half of its translations are acceptable."""
    folder = tmp_path_factory.mktemp("sure")
    for name, n in (("train", 600), ("valid", 240)):
        write_pairs(folder, name, n)
    changes = {"limits__max_steps": 150, "evaluation__every_steps": 150, "optimization__batch_tokens": 800}
    workshop.train(settings(workshop, folder, **changes), folder / "run")
    return folder / "run"


def curve_of(run: Path) -> dict[str, Any]:
    found = parse_line((run / CONFIDENCE_NAME).read_bytes())
    assert found is not None
    return found


def store(run: Path, **changes: Any) -> None:
    """Write a curve for the best weights of a run."""
    weights = fingerprint_of(open_run(run).files)
    (run / CONFIDENCE_NAME).write_text(record_line({**CURVE, "weights": weights, **changes}))


def test_training_learns_the_curve_of_the_best_checkpoint(sure: Path, trained: Path) -> None:
    stored = curve_of(sure)
    assert stored["weights"] == fingerprint_of(open_run(sure).files) and stored["n_lines"] == 240
    sources, references = ((sure.parent / f"valid.{side}").read_text().splitlines() for side in ("src", "tgt"))
    lines = list(load_translator([sure]).stream(sources))
    good = [
        sacrebleu.sentence_chrf(line.outputs[0].text, [reference]).score >= 60
        for line, reference in zip(lines, references, strict=True)
    ]
    scores = [line.outputs[0].log_prob / (len(line.outputs[0].ids[0]) + 1) for line in lines]
    isotonic = pytest.importorskip("sklearn.isotonic")
    theirs = isotonic.IsotonicRegression(out_of_bounds="clip").fit(np.round(scores, 6), good).predict(scores)
    ours = [line.confidence for line in lines]
    assert ours == pytest.approx(theirs.tolist(), abs=2e-6) and 0.3 < np.mean(good) < 0.7
    # It separates the translations that are acceptable from the others.
    assert np.mean(np.array(ours)[good]) > np.mean(ours) + 0.2 > np.mean(np.array(ours)[~np.array(good)]) + 0.4
    assert not (trained / CONFIDENCE_NAME).exists(), "eight lines are too few"


def test_the_curve_is_that_of_acceptable_translations(trained: Path, workshop: Any) -> None:
    """Every second line has its own translation as the reference, the others have one that shares nothing."""
    pipeline = load_translator([trained])
    sources = (workshop.file("train.src").read_text().splitlines() * 2)[:MIN_CONFIDENCE_LINES]
    lines = translate_development_set(pipeline, sources, [""] * len(sources))
    order = np.argsort([line.outputs[0].mean_log_prob for line in lines], kind="stable")
    middle = lines[order[len(lines) // 2]].outputs[0].mean_log_prob
    references = [
        line.outputs[0].text if line.outputs[0].mean_log_prob > middle and line.outputs[0].text else "zzz"
        for line in lines
    ]
    curve = learn_confidence(lines, references, "0" * 64)
    assert curve is not None and curve.n_lines == MIN_CONFIDENCE_LINES
    assert curve.probability(-99) == curve.probability(middle - 1e-3) == 0 and curve.probability(0) > 0.5
    assert learn_confidence(lines[1:], references[1:], "0" * 64) is None, "one line too few"


def test_each_line_has_its_probability(trained: Path, workshop: Any, tmp_path: Path, call: Call) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "in").write_text("1 2 3\n\n4 5\n")
    before = [json.loads(line) for line in call("translate", run, "-i", tmp_path / "in", "--json")[1].splitlines()]
    assert [line["confidence"] for line in before] == [None] * 3
    texts = ["1 2 3", "4 5", ""]
    scores = [line.outputs[0].mean_log_prob for line in load_translator([run]).stream(texts)]
    knots = [min(scores[:2]) - 0.5, max(scores[:2]) + 0.5]
    store(run, scores=knots, probabilities=[0.2, 0.7])
    expected = [pytest.approx(np.interp(score, knots, [0.2, 0.7]), abs=1e-6) for score in scores[:2]]
    after = [json.loads(line) for line in call("translate", run, "-i", tmp_path / "in", "--json")[1].splitlines()]
    assert [line["confidence"] for line in after] == [expected[0], None, expected[1]]
    code, out, err = call("translate", run, "-i", tmp_path / "in", "--return-confidence")
    shown = [line.split("\t") for line in out.splitlines()]
    best = [line["translations"][0] for line in after]
    assert code == 0 and shown == [
        [f"{line['confidence']:.6f}" if line["source"] else "", one["text"]]
        for line, one in zip(after, best, strict=True)
    ]
    both = call("translate", run, "-i", tmp_path / "in", "--return-confidence", "--return-scores")[1].splitlines()
    assert both[0] == f"{shown[0][0]}\t{best[0]['score']:.6f}\t{shown[0][1]}"
    for arguments in ((trained,), (run, trained), (run, "--sampling", "--seed", "1")):
        code, out, err = call("translate", *arguments, "-i", tmp_path / "in", "--return-confidence")
        assert code == 2 and out == "" and "no confidence" in err and "--return-confidence" in err
    translator = attnkit.Translator.load(run)
    found = translator.translate(texts)
    assert [one.confidence for one in found] == [*expected, None]
    assert found[0].to_dict()["confidence"] == found[0].confidence and "confidence" not in found[2].to_dict()
    sampled = translator.translate(texts[:1], sampling=True, seed=1)
    assert sampled[0].confidence is None, "the curve is that of a search"
    # Other weights have another curve, ensembles have none.
    assert attnkit.Translator.load(run, trained).translate(texts[:1])[0].confidence is None
    store(run, weights="1" * 64)
    assert attnkit.Translator.load(run).translate(texts[:1])[0].confidence is None


def test_a_curve_is_linear_between_its_knots_and_flat_beyond() -> None:
    curve = ConfidenceCurve.model_validate({**CURVE, "scores": [-3, -2.0, 0.5], "probabilities": [0.1, 0.1, 1]})
    for score in (-9.0, -3.0, -2.5, -2.0, -1.0, 0.0, 0.5, 3.0):
        assert curve.probability(score) == pytest.approx(np.interp(score, curve.scores, curve.probabilities))
    single = ConfidenceCurve.model_validate({**CURVE, "scores": [1.0], "probabilities": [0.3]})
    assert [single.probability(score) for score in (0.0, 1.0, 2.0)] == [0.3] * 3


def test_what_ends_the_learning(sure: Path, workshop: Any, tmp_path: Path) -> None:
    run = shutil.copytree(sure, tmp_path / "run")
    (run / CONFIDENCE_NAME).unlink()
    sources, references = ((sure.parent / f"valid.{side}").read_text().splitlines() for side in ("src", "tgt"))
    development = [(src, tgt, "") for src, tgt in zip(sources, references, strict=True)]
    add_confidence(run, development[: MIN_CONFIDENCE_LINES - 1])
    with pytest.raises(EvaluationCancelled):
        add_confidence(run, development, stop=lambda: True)
    assert not (run / CONFIDENCE_NAME).exists()
    add_confidence(run, development)
    assert curve_of(run) == curve_of(sure)
    add_confidence(run, development * 9)  # every second of 2,160
    assert curve_of(run)["n_lines"] == 1080
    config = settings(workshop, sure.parent, limits__max_steps=2, confidence=False)
    workshop.train(config, tmp_path / "other")
    assert not (tmp_path / "other" / CONFIDENCE_NAME).exists()


def ended_while_learning(config: Any, run: Path, *, stopped: bool) -> None:
    """Train until the confidence is learned; then a stop is requested, or the process is killed."""
    asked: list[bool] = []
    events = train(TrainRequest(config, run, stop=lambda: bool(asked)))
    for event in events:
        if "confidence" in getattr(event, "text", ""):
            break
    if not stopped:
        events.close()
        return
    asked.append(True)
    with pytest.raises(StoppedError, match="everything is saved"):
        list(events)


@pytest.mark.sample(2)
@pytest.mark.parametrize("stopped", [True, False])
def test_a_run_that_is_ended_while_it_learns_resumes(sure: Path, workshop: Any, tmp_path: Path, stopped: bool) -> None:
    changes = {"limits__max_steps": 150, "evaluation__every_steps": 150, "optimization__batch_tokens": 800}
    config, run = settings(workshop, sure.parent, **changes), tmp_path / "run"
    ended_while_learning(config, run, stopped=stopped)
    assert not (run / CONFIDENCE_NAME).exists() and (run / "checkpoints" / "step-150").exists()
    state = json.loads((run / "status.json").read_text())["state"]
    assert state == ("stopped" if stopped else "running")
    (*_, done) = train(TrainRequest(config, run))
    assert not done.already and (run / CONFIDENCE_NAME).read_bytes() == (sure / CONFIDENCE_NAME).read_bytes()
    assert (run / "metrics.jsonl").read_bytes() == (sure / "metrics.jsonl").read_bytes()
    (*_, done) = train(TrainRequest(config, run))
    assert done.already
    # A finished run of an earlier version is left as it is.
    (run / CONFIDENCE_NAME).unlink()
    (*_, done) = train(TrainRequest(config, run))
    assert done.already and not (run / CONFIDENCE_NAME).exists()


def test_a_run_that_goes_on_learns_the_curve_of_its_new_weights(sure: Path, workshop: Any, tmp_path: Path) -> None:
    changes = {"evaluation__every_steps": 10, "limits__metric": "loss"}
    short, longer = (settings(workshop, sure.parent, limits__max_steps=steps, **changes) for steps in (10, 20))
    run = tmp_path / "run"
    workshop.train(short, run)
    before = curve_of(run)
    ended_while_learning(longer, run, stopped=False)
    assert curve_of(run) == before and load_translator([run]).curve is None
    workshop.train(longer, run)
    assert curve_of(run)["weights"] == fingerprint_of(open_run(run).files) != before["weights"]


@pytest.mark.parametrize(
    "changes",
    [
        {"scores": [-1.0, -2.0]},
        {"scores": [-1.0, -1.0]},
        {"scores": [-1.0]},
        {"scores": ["-2", "-1"]},
        {"scores": [float("nan"), 1.0]},
        {"probabilities": [0.9, 0.1]},
        {"probabilities": [0.1, 1.5]},
        {"scores": [float(k) for k in range(4001)], "probabilities": [0.5] * 4001},
        {"scores": [], "probabilities": []},
        {"n_lines": 0},
        {"weights": "x"},
        {"more": 1},
    ],
)
def test_a_damaged_curve_is_refused(trained: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / CONFIDENCE_NAME).write_text(record_line({**CURVE, **changes}))
    with pytest.raises(RunError, match="confidence is damaged"):
        read_confidence(tmp_path, "0" * 64)


def test_a_damaged_file_is_refused(trained: Path, tmp_path: Path, call: Call) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    store(run)
    whole = (run / CONFIDENCE_NAME).read_text()
    assert call("verify", run)[0] == 0
    for content in ("", "{}", whole.replace("0.9", "0.8"), whole[:-3], whole * 2, " " * (1 << 20) + whole):
        (run / CONFIDENCE_NAME).write_text(content)
        code, _, err = call("translate", run, "-i", "/dev/null")
        assert code == 4 and "confidence is damaged" in err and "delete it" in err
        assert call("verify", run)[0] == 4
    (run / CONFIDENCE_NAME).unlink()
    (run / CONFIDENCE_NAME).symlink_to("/dev/zero")
    with pytest.raises(RunError, match="confidence is damaged"):
        read_confidence(run, "0" * 64)
