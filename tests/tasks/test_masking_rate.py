"""A masking rate that changes over the run: its values, divisors, development text, and what it costs to measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language import prepare

from attnkit.data.config import MaskingConfig
from attnkit.data.loader import BatchLoader, DataPosition
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.gradient_session import build_job
from attnkit.engine.parallel import build_parameter_store
from attnkit.engine.plan import measure_rate
from attnkit.engine.task import task_of
from attnkit.tasks.language_modeling.data import load_text
from attnkit.tasks.language_modeling.evaluate import LanguageEvaluation, language_loss
from attnkit.tasks.language_modeling.task import make_model
from attnkit.training.loop import fit
from attnkit.training.records import StepRecord
from attnkit.training.state import TrainState

NAMES = ("masked tokens", "pairs")
FALLING = MaskingConfig(mask_prob=0.6, final_mask_prob=0.1)


def falling(workshop: Any, name: str = "masked tokens", masking: MaskingConfig = FALLING, **changes: Any) -> Any:
    """Return the configuration of a run whose masking rate falls."""
    return workshop.configure_task(name, **changes).model_copy(update={"masking": masking})


def prepared_text(workshop: Any, run: Path, *given: Any, **changes: Any) -> tuple[Any, Any]:
    """Return such a configuration and its text."""
    config = falling(workshop, *given, **changes)
    prepare(config, run)
    return config, load_text(config, run / "data")


def test_the_rate_is_linear_and_exact_at_both_ends() -> None:
    config = MaskingConfig(mask_prob=0.3, final_mask_prob=0.15)
    assert config.at(0).mask_prob == 0.3 and config.at(1).mask_prob == 0.15
    assert config.at(0.2).mask_prob == pytest.approx(0.27)
    assert config.at(0.2).final_mask_prob is None
    assert MaskingConfig(mask_prob=0.15, final_mask_prob=0.4).at(0.5).mask_prob == pytest.approx(0.275)
    constant = MaskingConfig(mask_prob=0.2)
    assert constant.at(0.7) is constant


@pytest.mark.parametrize("limits", [{"max_steps": 8}, {"max_epochs": 1.5}, {"max_tokens": 3000}])
def test_steps_are_masked_at_the_rate_of_their_progress(workshop: Any, tmp_path: Path, limits: dict[str, Any]) -> None:
    """Counted in the batches of a whole run: the divisor of each step, and the share of its maskable tokens."""
    config, prepared = prepared_text(workshop, tmp_path, limits=limits, optimization__batch_tokens=1000)
    model = make_model(config, prepared.tokenizer.vocab_size)
    task, device = task_of(config), torch.device("cpu")
    evaluation = task.evaluation(config, prepared, device, None)
    job = build_job(task, config, model, prepared, evaluation, ProcessGroup())
    feed, shares, n_masked = job.feed, [0.0], []

    class Watched:
        def batch_at(self, place: DataPosition, share: float) -> Any:
            step, after = feed.batch_at(place, share)
            n_free = sum(int((batch.ids > 2).sum()) for batch in step.micro_batches)  # special ids are 0 to 2
            n = sum(len(batch.targets) for batch in step.micro_batches)
            assert step.counts == {"nll": n}
            assert share == pytest.approx(shares[-1], abs=1e-8)
            n_masked.append((share, n / n_free))
            return step, after

    weights = build_parameter_store(model, config, "float32", ProcessGroup(), {})
    for record in fit(replace(job, feed=Watched(), evaluate=None), TrainState(weights, DataPosition())):
        assert isinstance(record, StepRecord)
        shares.append(record.progress)
    assert len(n_masked) >= 5 and shares[-1] == 1
    for share, found in n_masked:
        assert found == pytest.approx(0.6 - 0.5 * share, abs=0.05)
    assert n_masked[0][1] > n_masked[-1][1] + 0.3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("progress", [0.0, 0.4, 1.0])
def test_ranks_and_micro_batches_give_the_gradient_of_one(
    workshop: Any, tmp_path: Path, name: str, progress: float
) -> None:
    """Divisors are those of the batch at this rate, also where they are counted without reading the rows."""
    config, prepared = prepared_text(workshop, tmp_path, name)
    schedule = task_of(config).dataset_schedule(config, prepared)
    torch.manual_seed(1)
    model = make_model(config, prepared.tokenizer.vocab_size).double()
    loss = language_loss(model.eval(), torch.device("cpu"), 0.0)
    gradients, counts = [], []
    for world, accumulate in ((1, 1), (2, 2)):
        model.zero_grad()
        n = 0
        for rank in range(world):
            feed = BatchLoader(prepared.train, 1, 300, accumulate, rank, world, schedule=schedule)
            step = feed.batch_at(DataPosition(1, 2), progress)[0]
            for batch in step.micro_batches:
                n += len(batch.targets)
                terms = loss(batch)
                torch.stack([found.total / step.counts[term] for term, found in terms.items()]).sum().backward()
        assert step.counts["nll"] == n
        counts.append(n)
        gradients.append({key: weight.grad.clone() for key, weight in model.named_parameters()})
    assert counts[0] == counts[1]
    for key, gradient in gradients[0].items():
        assert float((gradients[1][key] - gradient).norm()) <= 1e-9 * float(gradient.norm()), key


def test_a_lower_rate_selects_some_of_what_a_higher_one_does(workshop: Any, tmp_path: Path) -> None:
    _, prepared = prepared_text(workshop, tmp_path)
    indices = np.arange(len(prepared.train))
    chosen = [set(prepared.train.at(share).batch(indices, 1, 0).chosen.tolist()) for share in (0.0, 0.5, 1.0)]
    assert chosen[2] < chosen[1] < chosen[0]


@pytest.mark.parametrize("name", NAMES)
def test_development_text_is_masked_at_the_last_rate(workshop: Any, tmp_path: Path, name: str) -> None:
    """The same tokens as in a run with that rate throughout, whose losses are comparable."""
    batches = []
    for part, masking in {"falling": FALLING, "constant": MaskingConfig(mask_prob=0.1)}.items():
        config, prepared = prepared_text(workshop, tmp_path / part, name, masking)
        evaluation = LanguageEvaluation(prepared, config, torch.device("cpu"))
        batches.append([(batch.ids.tolist(), batch.chosen.tolist()) for batch in evaluation.batches()])
    assert batches[0] == batches[1]
    config, prepared = prepared_text(workshop, tmp_path / "other", name, MaskingConfig(mask_prob=0.6))
    others = LanguageEvaluation(prepared, config, torch.device("cpu")).batches()
    assert [(batch.ids.tolist(), batch.chosen.tolist()) for batch in others] != batches[0]


def test_a_constant_rate_has_no_schedule(workshop: Any, tmp_path: Path) -> None:
    config, prepared = prepared_text(workshop, tmp_path, "masked tokens", MaskingConfig(mask_prob=0.3))
    assert task_of(config).dataset_schedule(config, prepared) is None


def test_training_steps_are_measured_at_the_mean_rate(workshop: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """What a plan measures costs as much as the whole run does on average."""
    from attnkit.tasks.language_modeling.task import LanguageModelingTask

    seen = []
    built = LanguageModelingTask.random_dataset
    monkeypatch.setattr(LanguageModelingTask, "random_dataset", lambda *given: seen.append(built(*given)) or seen[-1])
    config = falling(workshop)
    task = task_of(config)
    measure_rate(task, config, task.corpus_size(config), 0.01)
    assert seen[0].masking.config.mask_prob == pytest.approx(0.35)
