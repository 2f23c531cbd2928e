"""The loop: what a step computes, when it ends, what it refuses."""

from __future__ import annotations

import dataclasses
import itertools
import json
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from attnkit.errors import DivergedError, UsageError
from attnkit.training.loop import fit
from attnkit.training.losses import LossTerm
from attnkit.training.records import EvaluationRecord, StepRecord


def first_gradient(toy: ModuleType, dtype: torch.dtype, **feed: int) -> tuple[dict[str, Tensor], float]:
    """Return the gradient of one global batch and its reported loss, each rank's part added."""
    total, loss = None, 0.0
    for rank in range(feed.get("world", 1)):
        seen: list[Tensor] = []
        reduce = lambda tensor, seen=seen: seen.append(tensor.clone())  # noqa: E731
        config = toy.make_config(limits={"max_steps": 1})
        here = toy.setting(config, dtype=dtype, feed=feed | {"rank": rank}, rank=rank, reduce=reduce)
        (record,) = here.run()
        loss += record.loss
        total = seen[0] if total is None else total + seen[0]
    return here.state.weights.views(total), loss


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_gradient_does_not_depend_on_how_the_batch_is_cut(
    toy: ModuleType, dtype: torch.dtype, tolerance: float
) -> None:
    whole, whole_loss = first_gradient(toy, dtype)
    assert all(gradient.norm() > 0 for gradient in whole.values())
    for cut in ({"accumulate": 4}, {"world": 2}, {"world": 2, "accumulate": 3}, {"accumulate": 64}):
        parts, loss = first_gradient(toy, dtype, **cut)
        assert loss == pytest.approx(whole_loss, rel=tolerance)
        for name, gradient in parts.items():
            assert (gradient - whole[name]).norm() <= tolerance * whole[name].norm(), (cut, name)


def test_gradient_is_that_of_the_mean(toy: ModuleType) -> None:
    """An independent objective: each term's mean over the whole batch, by torch's own cross-entropy."""
    model = toy.Toy().double()
    batch = toy.collate(toy.make_pairs()[:64])
    hidden = model.hidden(batch)
    logits = nn.functional.linear(hidden.flatten(0, 1)[batch.positions], model.output.weight, model.output.bias)
    nll = nn.functional.cross_entropy(logits, batch.targets, label_smoothing=0.1)
    (nll + 0.3 * hidden[:, 0, 0].square().mean()).backward()
    found, loss = first_gradient(toy, torch.float64)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad, rtol=1e-9, atol=1e-12)
    assert loss == pytest.approx(float(nn.functional.cross_entropy(logits.detach(), batch.targets)), rel=1e-9)


def test_records_of_a_run(toy: ModuleType) -> None:
    config = toy.make_config(limits={"max_steps": 7}, evaluation={"every_steps": 3})
    here = toy.setting(config, evaluate=toy.held_out_loss)
    records = here.run()
    assert [(type(r), r.step) for r in records if isinstance(r, EvaluationRecord)] == [
        (EvaluationRecord, 3),
        (EvaluationRecord, 6),
        (EvaluationRecord, 7),
    ]
    steps = [r for r in records if isinstance(r, StepRecord)]
    assert [r.step for r in steps] == list(range(1, 8))
    assert [r.epoch for r in steps] == pytest.approx([i / 3 for i in range(1, 8)])
    assert [r.learning_rate for r in steps] == pytest.approx([0.02 / 3, 0.04 / 3, *[0.02] * 5])
    assert list(itertools.accumulate(r.n_tokens for r in steps)) == [r.tokens for r in steps]
    assert [r.progress for r in steps] == pytest.approx([i / 7 for i in range(1, 8)])
    assert here.state.finished == "steps"
    assert list(fit(here.job, here.state)) == []


@pytest.mark.parametrize("limits", [{"max_steps": 7}, {"max_epochs": 7 / 3}, {"max_tokens": 2000}])
def test_reading_ahead_changes_nothing(toy: ModuleType, limits: dict[str, float]) -> None:
    """Nor does it change what share of the run a batch is asked for: that before its step."""
    config = toy.make_config(limits=limits, evaluation={"every_steps": 3})
    found, questions = [], []
    for ahead in (False, True):
        asked = []
        questions.append(asked)
        here = toy.setting(config, evaluate=toy.held_out_loss, prefetch=ahead)
        batch_at, feed = here.job.feed.batch_at, here.job.feed
        here.job.feed.batch_at = lambda place, share, batch_at=batch_at, asked=asked: (
            asked.append((place, share)),
            batch_at(place),
        )[1]
        found.append(here.run())
        steps = [record for record in found[-1] if isinstance(record, StepRecord)]
        assert [place for place, _ in asked] == [toy.Place(n // 3, n % 3) for n in range(len(steps) + ahead)]
        assert [share for _, share in asked[1:]] == [r.progress for r in steps][: len(asked) - 1]
        assert asked[0][1] == pytest.approx(0, abs=1e-8) and len(steps) >= 5 and feed is here.job.feed
    assert questions[1][:-1] == questions[0]
    assert found[0] == found[1]


def test_training_learns(toy: ModuleType) -> None:
    """A target letter is one of its source's few, shifted: knowing that leaves far less than ln 29 = 3.4 nats."""
    config = toy.make_config(optimization={"learning_rate": 0.03, "schedule": "cosine"}, limits={"max_steps": 90})
    losses = [record.loss for record in toy.setting(config).run()]
    assert losses[0] > 3.3
    assert losses[-1] < 2.2


def test_finish_reasons(toy: ModuleType) -> None:
    def reason(limits: dict[str, object], **job: object) -> tuple[str | None, int]:
        here = toy.setting(toy.make_config(limits={"max_steps": 50} | limits), **job)
        here.run()
        return here.state.finished, here.state.step

    assert reason({"max_steps": 4}) == ("steps", 4)
    assert reason({"max_epochs": 1.5}) == ("epochs", 5)  # three steps an epoch
    assert reason({"max_epochs": 2}) == ("epochs", 6)
    assert reason({"max_tokens": 1}) == ("tokens", 1)
    ticks = itertools.count(step=15)
    assert reason({"max_minutes": 1}, clock=lambda: float(next(ticks))) == ("minutes", 4)
    assert reason({"max_steps": 3}, stop=lambda: True) == ("stopped", 1)
    assert reason({"early_stopping_patience": 2}, evaluate=lambda model: {"loss": 1.0}) == ("patience", 9)


def test_an_evaluation_that_a_stop_leaves_out_comes_first_after_it(toy: ModuleType) -> None:
    config = toy.make_config(limits={"max_steps": 2})
    here = toy.setting(config, evaluate=toy.held_out_loss, stop=lambda: True)
    assert [type(r) for r in here.run()] == [StepRecord]
    assert here.state.finished == "stopped"
    assert [type(r) for r in here.run()] == [StepRecord]
    assert [type(r) for r in here.run()] == [EvaluationRecord]
    assert here.state.finished == "steps"


def test_plateau_lowers_the_rate_and_min_lr_ratio_bounds_it(toy: ModuleType) -> None:
    optimization = {"schedule": "plateau", "warmup_steps": 0, "plateau_patience": 2, "min_lr_ratio": 0.3}
    config = toy.make_config(optimization=optimization, limits={"max_steps": 8}, evaluation={"every_steps": 1})
    losses = iter([5.0, 4.0, 4.0, 4.5, 4.0, float("nan"), 3.0, 3.0])
    here = toy.setting(config, evaluate=lambda model: {"loss": next(losses)})
    rates = [r.learning_rate / 0.02 for r in here.run() if isinstance(r, StepRecord)]
    assert rates == pytest.approx([1, 1, 1, 1, 0.5, 0.5, 0.3, 0.3])
    assert (here.state.best, here.state.best_step, here.state.evals_without_improvement) == (3.0, 7, 1)


def test_the_loss_decides_between_equal_metrics(toy: ModuleType) -> None:
    config = toy.make_config(limits={"max_steps": 5, "metric": "bleu"}, evaluation={"every_steps": 1})
    found = iter([(0.0, 5.0), (0.0, 4.0), (0.0, 4.5), (1.0, 6.0), (1.0, 6.0)])
    here = toy.setting(config, evaluate=lambda model: dict(zip(("bleu", "loss"), next(found), strict=True)))
    improved = [r.improved for r in here.run() if isinstance(r, EvaluationRecord)]
    assert improved == [True, True, False, True, False]
    assert (here.state.best, here.state.best_step, here.state.evals_without_improvement) == (1.0, 4, 1)


def test_a_metric_that_is_not_finite_is_never_the_best(toy: ModuleType) -> None:
    config = toy.make_config(limits={"max_steps": 3}, evaluation={"every_steps": 1})
    losses = iter([float("nan"), float("-inf"), 3.0])
    here = toy.setting(config, evaluate=lambda model: {"loss": next(losses)})
    assert [r.improved for r in here.run() if isinstance(r, EvaluationRecord)] == [False, False, True]
    assert (here.state.best, here.state.best_step) == (3.0, 3)


def poisoned(toy: ModuleType, bad: set[int], kind: str, **config: dict[str, object]) -> object:
    """Build a setting whose loss or gradient is NaN in the steps ``bad`` (from 1)."""
    here = toy.setting(toy.make_config(**config), evaluate=toy.held_out_loss)
    plain = here.job.loss

    def loss(batch: object) -> dict[str, LossTerm]:
        terms = plain(batch)
        if here.state.step + 1 in bad:
            total = terms["nll"].total
            bias = here.job.model.output.bias.sum() * 0
            extra = total * float("nan") if kind == "loss" else (bias.square()).sqrt()  # finite, its gradient is not
            terms["nll"] = LossTerm(total + extra)
        return terms

    return toy.Setting(dataclasses.replace(here.job, loss=loss), here.state)


@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_not_applied(toy: ModuleType, kind: str) -> None:
    here = poisoned(toy, {3}, kind, optimization={"ema_decay": 0.9})
    weights = []
    for record in fit(here.job, here.state):
        if isinstance(record, StepRecord):
            model, optimizer = here.state.weights.tensors()
            weights.append({k: v.clone() for k, v in (model | optimizer).items()})
            assert record.skipped == (record.step == 3)
    for name, tensor in weights[1].items():
        assert torch.equal(weights[2][name], tensor), name
    assert not torch.equal(weights[3]["mix.weight"], weights[2]["mix.weight"])
    assert all(w.isfinite().all() for w in weights[-1].values())
    assert (here.state.step, here.state.skipped, here.state.skipped_in_row) == (5, 1, 0)
    assert here.state.weights.n_updates == 4


def test_ten_in_a_row_end_the_run(toy: ModuleType) -> None:
    here = poisoned(toy, set(range(2, 40)), "loss", limits={"max_steps": 50})
    seen = []
    with pytest.raises(DivergedError, match="10 steps in a row"):
        seen.extend(fit(here.job, here.state))
    assert [r.step for r in seen] == [*range(1, 4), 3, *range(4, 7), 6, *range(7, 10), 9, 10, 11]
    restored = poisoned(toy, set(), "loss", limits={"max_steps": 50})
    restored.state.restore(*here.state.weights.tensors(), here.state.counters())
    with pytest.raises(DivergedError):  # it would only happen again
        next(fit(restored.job, restored.state))
    nine = poisoned(toy, set(range(2, 11)), "loss", limits={"max_steps": 12})
    nine.run()
    assert nine.state.skipped == 9


def test_evaluation_sees_the_saved_weights(toy: ModuleType) -> None:
    config = toy.make_config(optimization={"ema_decay": 0.5}, limits={"max_steps": 4})
    seen: dict[str, Tensor] = {}

    def evaluate(model: nn.Module) -> dict[str, float]:
        seen.update({name: p.detach().clone() for name, p in model.named_parameters()})
        assert not model.training
        assert not torch.is_grad_enabled()
        return {"loss": 1.0}

    for precision in ("float32", "bfloat16"):
        here = toy.setting(config, evaluate=evaluate, precision=precision)
        here.run()
        model, optimizer = here.state.weights.tensors()
        for name, shown in seen.items():
            assert torch.equal(shown, model[name])
            assert shown.dtype == torch.float32
        assert not torch.equal(optimizer["weights.mix.weight"], model["mix.weight"])


def test_refusals(toy: ModuleType) -> None:
    with pytest.raises(UsageError, match="patience needs validation data"):
        toy.setting(toy.make_config(limits={"early_stopping_patience": 1})).run()
    with pytest.raises(UsageError, match="plateau needs validation data"):
        toy.setting(toy.make_config(optimization={"schedule": "plateau"})).run()
    with pytest.raises(UsageError, match="unknown metric 'loss'") as caught:
        toy.setting(toy.make_config(), evaluate=lambda model: {"bleu": 1.0, "chrf": 2.0}).run()
    assert "bleu, chrf" in caught.value.lines()[-1]


def test_counters_are_json(toy: ModuleType) -> None:
    here = toy.setting(toy.make_config(), evaluate=toy.held_out_loss)
    here.run()
    assert json.loads(json.dumps(here.state.counters())) == here.state.counters()
