"""Stopping, saving and going on gives bit-identical weights."""

from __future__ import annotations

import dataclasses
import functools
import json
from types import ModuleType

import pytest
import torch
from safetensors.torch import load, save

from attnkit.errors import RunError
from attnkit.training.loop import fit
from attnkit.training.records import EvaluationRecord

SETTINGS = {
    "plain": ({}, {}),
    "average": ({"ema_decay": 0.9, "schedule": "cosine"}, {}),
    "plateau": ({"schedule": "plateau", "plateau_patience": 2, "learning_rate": 0.5}, {"accumulate": 3}),
    "bfloat16": ({"ema_decay": 0.8, "schedule": "wsd"}, {"accumulate": 2}),
    "muon": ({"optimizer": "muon", "ema_decay": 0.9, "schedule": "cosine"}, {"accumulate": 2}),
    "muon in bfloat16": ({"optimizer": "muon"}, {"accumulate": 3}),
}
N_STEPS = 11  # three steps an epoch, an evaluation every two


def build(toy: ModuleType, name: str, model_seed: int = 0, **job: object) -> object:
    optimization, feed = SETTINGS[name]
    config = toy.make_config(optimization=optimization, limits={"max_steps": N_STEPS}, evaluation={"every_steps": 2})
    return toy.setting(
        config,
        dropout=0.3,
        precision="bfloat16" if "bfloat16" in name else "float32",
        model_seed=model_seed,
        feed=feed,
        evaluate=toy.held_out_loss,
        **job,
    )


def on_disk(state: object) -> tuple[bytes, bytes, str]:
    model, optimizer = state.weights.tensors()
    counters = state.counters() | {"minutes": 0.0}
    return save(model), save(optimizer), json.dumps(counters)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_stopped_run_goes_on_bit_identically(toy: ModuleType, name: str) -> None:
    whole = build(toy, name)
    expected = whole.run()
    assert len({r.metrics["loss"] for r in expected if isinstance(r, EvaluationRecord)}) == 6
    assert (whole.state.lr_scale < 1) == (name == "plateau")
    for stop_at in (1, 4, 7):
        first = build(toy, name)
        stop = functools.partial(lambda state, step: state.step + 1 == step, first.state, stop_at)
        first = toy.Setting(dataclasses.replace(first.job, stop=stop), first.state)
        records = first.run()
        assert first.state.finished == "stopped"
        model, optimizer, counters = on_disk(first.state)
        second = build(toy, name, model_seed=1)
        second.state.restore(load(model), load(optimizer), json.loads(counters))
        torch.manual_seed(12345)
        assert records + second.run() == expected
        assert on_disk(second.state) == on_disk(whole.state), stop_at


def test_an_abandoned_generator_can_be_saved_at_any_yield(toy: ModuleType) -> None:
    whole = build(toy, "average")
    expected = whole.run()
    for cut in range(1, len(expected), 2):
        first = build(toy, "average")
        records = fit(first.job, first.state)
        head = [next(records) for _ in range(cut)]
        model, optimizer, counters = on_disk(first.state)
        second = build(toy, "average", model_seed=1)
        second.state.restore(load(model), load(optimizer), json.loads(counters))
        assert head + second.run() == expected
        assert on_disk(second.state) == on_disk(whole.state), cut


def test_dropout_differs_between_steps_micro_batches_and_ranks(toy: ModuleType) -> None:
    config = toy.make_config(limits={"max_steps": 2})
    drawn: list[float] = []
    for rank in range(2):
        here = toy.setting(config, feed={"accumulate": 2}, rank=rank)
        plain = here.job.loss

        def loss(batch: object, plain: object = plain) -> object:
            drawn.append(torch.rand(()).item())
            return plain(batch)

        toy.Setting(dataclasses.replace(here.job, loss=loss), here.state).run()
    assert len(drawn) == 8 == len(set(drawn))


def test_restore_refuses_what_does_not_fit(toy: ModuleType) -> None:
    source = build(toy, "plain").state
    model, optimizer = source.weights.tensors()
    counters = source.counters()
    with pytest.raises(RunError, match=r"optimizer does not fit this run: it lacks 'weights\."):
        build(toy, "average").state.restore(model, optimizer, counters)
    with pytest.raises(RunError, match="unknown tensor 'extra'"):
        build(toy, "plain").state.restore(model | {"extra": torch.ones(1)}, optimizer, counters)
    with pytest.raises(RunError, match=r"'mix.bias' is \(3,\), not \(12,\)"):
        build(toy, "plain").state.restore(model | {"mix.bias": torch.ones(3)}, optimizer, counters)
    with pytest.raises(RunError, match="lacks 'evals_without_improvement'"):
        build(toy, "plain").state.restore(
            model, optimizer, {k: v for k, v in counters.items() if k != "evals_without_improvement"}
        )
    target = build(toy, "plain", model_seed=1)
    target.state.restore(model, optimizer, counters)
    assert {"scale"} <= model.keys()
