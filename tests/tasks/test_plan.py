"""Plans of runs: counts and memory of the model itself, time by the rate, and what published results say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import attnkit
from attnkit.engine.plan import PlanRequest, measure_rate, plan
from attnkit.engine.plan_advice import PUBLISHED, advise
from attnkit.engine.resolve import resolve
from attnkit.engine.task import task_of
from attnkit.errors import UsageError

Call = Callable[..., tuple[int, str, str]]
SMALL = {
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.d_ff": 32,
    "vocabulary.size": 300,
    "optimization.batch_tokens": 200,
}
LANGUAGE = {**SMALL, "model.n_layers": 1, "model.max_length": 24, "data.sequence_length": 24}
TRANSLATION = {**SMALL, "model.encoder_layers": 1, "model.decoder_layers": 1}
TASKS = {
    "translation": TRANSLATION,
    "mlm": LANGUAGE,
    "mlm with next sentences": {**LANGUAGE, "task": "mlm", "model.next_sentence": True},
    "mlm of words": {**LANGUAGE, "task": "mlm", "masking.mask_unit": "words"},
    "clm": LANGUAGE,
    "recurrent": {**SMALL, "task": "translation", "model.kind": "rnn", "model.d_hidden": 16},
}
for _settings in TASKS.values():
    if _settings.get("model.kind") == "rnn":
        del _settings["model.n_heads"], _settings["model.d_ff"]


def write(folder: Path, n: int = 300) -> list[str]:
    names = []
    for side in ("src", "tgt"):
        path = folder / f"a.{side}"
        path.write_text("".join(f"the {side} line number {i} of {i % 7} has words\n" for i in range(n)))
        names.append(str(path))
    return names


def request(name: str, **more: Any) -> PlanRequest:
    settings = {"task": name, "device": "cpu", "threads": 1, "precision": "float32", **TASKS[name]}
    return PlanRequest({**settings, **more.pop("settings", {})}, preset="tiny", **more)


@pytest.mark.parametrize("name", TASKS)
def test_a_rate_is_measured_for_every_model(name: str) -> None:
    found = plan(request(name, tokens=1e5, seconds=0.05))
    assert found.is_measured and found.tokens_per_second > 0 and 20 < found.batch_tokens <= 200
    assert math.isclose(found.hours, found.tokens / found.tokens_per_second / 3600, rel_tol=1e-5)
    assert sum(found.memory_parts.values()) == pytest.approx(found.memory, abs=10)


@pytest.mark.filterwarnings("ignore:300 usable pairs")
def test_a_plan_of_files_is_that_of_the_run(tmp_path: Path) -> None:
    """The run itself has as many parameters, entries, tokens per epoch and steps."""
    src, tgt = write(tmp_path)
    settings = {"data.src": [src], "data.tgt": [tgt], "limits.max_epochs": 2.0}
    found = plan(request("translation", settings=settings, seconds=0.05))
    events: list[Any] = []
    given: Any = {**TRANSLATION, "limits.max_epochs": 2.0, "data.accept": True, "precision": "float32"}
    attnkit.train(
        src, tgt, tmp_path / "run", preset="tiny", settings=given, device="cpu", threads=1, on_event=events.append
    )
    started = next(event for event in events if hasattr(event, "n_parameters"))
    steps = [event for event in events if hasattr(event, "grad_norm")]
    assert found.n_parameters == started.n_parameters and found.n_examples == 300
    assert found.tokens == pytest.approx(steps[-1].tokens, rel=0.1)  # a twentieth is held out
    assert found.steps == pytest.approx(len(steps), rel=0.15) and found.limited_by == "epochs"
    assert found.epochs == pytest.approx(2)


def test_limits_hours_and_devices_end_a_run() -> None:
    limits = {"limits.max_steps": 1000}
    whole = plan(request("clm", tokens=1e6, rate=100.0, settings=limits))
    assert (whole.limited_by, whole.steps, whole.is_measured) == ("steps", 1000, False)
    short = plan(request("clm", tokens=1e6, rate=100.0, hours=0.05, devices=2, settings=limits))
    assert (short.limited_by, short.tokens, short.hours) == ("hours", 36_000, 0.05)
    assert short.device_hours == pytest.approx(0.1) and short.epochs == pytest.approx(0.036)


def test_padding_and_warm_up_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is the tokens of the timed steps per second, by a clock that ticks once a step."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("attnkit.engine.plan.time.perf_counter", lambda: float(next(ticks)))
    planned = request("clm", tokens=1e4)
    settings = {**planned.settings, "data.files": ["corpus"]}
    config = resolve(settings, preset_name="tiny").config
    from attnkit.engine.plan import _given_size

    corpus = _given_size(planned, config)
    assert corpus is not None
    rate, batch = measure_rate(task_of(config), config, corpus, 10.0)
    assert rate == batch and 100 < batch <= 200


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({}, "a plan needs a corpus"),
        ({"tokens": 5.0, "settings": {"data.files": ["a"]}}, "a plan needs a corpus"),
        ({"tokens": math.nan}, "tokens must be a number"),
        ({"tokens": 5.0, "hours": 0.0}, "hours must be a number"),
        ({"tokens": 5.0, "rate": -1.0}, "rate must be a number"),
        ({"tokens": 5.0, "devices": 0}, "devices must be a number"),
        ({"tokens": 1e5, "settings": {"adapter.kind": "lora"}}, "steps of adapters are not measured"),
    ],
)
def test_what_cannot_be_planned_is_refused(more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        plan(request("clm", **more))
    with pytest.raises(UsageError, match="runs of task 'word2vec' cannot be planned"):
        plan(PlanRequest({"task": "word2vec"}, tokens=5.0))


def test_advice_is_that_of_the_papers() -> None:
    """Chinchilla's own size: 70 billion parameters and 1.4 trillion tokens are at the optimum."""
    (text,) = advise("clm", 70_000_000_000, 10**9, 1.4e12, 1.4e12)
    assert text.startswith("20 tokens per parameter") and "7e+04 million parameters and 1.4e+06 million tokens" in text
    _, repeated = advise("clm", 10**6, 10**5, 1e8, 1e7)
    assert repeated.startswith("10 epochs: beyond 4")
    (few,) = advise("translation", 10**7, 29_000, 1e8, 1e6)
    (many,) = advise("translation", 65_000_000, 4_500_000, 5e9, 1e8)
    assert "29,000 pairs" in few and all(f"{size / 1e6:.0f} million ({name})" in many for _, name, size, _ in PUBLISHED)
    assert advise("mlm", 10**7, 10**6, 1e9, 1e8) == []


def test_the_command_prints_the_plan(call: Call) -> None:
    arguments = ["plan", "--task", "mlm", "--tokens", "1e6", "--preset", "tiny", "--rate", "1000", "--hours", "0.1"]
    code, out, err = call(*arguments)
    assert code == 0 and "360.0k tokens" in out and "(limit: hours)" in out and not err
    code, out, _ = call(*arguments, "--json")
    assert code == 0 and json.loads(out)["tokens"] == 360_000
    called = attnkit.plan(task="mlm", tokens=1e6, preset="tiny", rate=1000.0, hours=0.1)
    assert called.to_dict() == json.loads(out)
