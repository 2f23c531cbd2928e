"""Layers that torch compiles: the same training, and a compiler that fails is told of."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from attnkit.engine.parallel import run_eager
from attnkit.errors import StoppedError, SystemFailure, UsageError
from attnkit.models.attention.multihead import FULL_ATTENTION
from attnkit.models.language_config import BertConfig
from attnkit.models.layers import EncoderLayer

STILL = {"model__dropout": 0.0, "model__attention_dropout": 0.0}
STEPS = {"limits__max_steps": 10, "precision": "float32", **STILL}

# torch's compiler warns of its own doing.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Follow the code as a compiler does, and generate none, which takes long; return the kinds of what is compiled."""
    given, compiled = nn.Module.compile, list[str]()

    def compile(self: nn.Module, dynamic: bool) -> None:
        compiled.append(type(self).__name__)
        given(self, backend="eager", dynamic=dynamic)

    monkeypatch.setattr(nn.Module, "compile", compile)
    torch._dynamo.reset()
    return compiled


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "loss" in row]


@pytest.mark.parametrize("name", ["masked tokens", "next words", "transformer"])
@pytest.mark.slow
def test_the_training_is_the_same(workshop: Any, tmp_path: Path, backend: list[str], name: str) -> None:
    make, found = workshop.configure if name == "transformer" else workshop.configure_task, {}
    counters.clear()
    for compiled in (False, True):
        run = tmp_path / f"{compiled}"
        workshop.train(make(name, torch_compile=compiled, **STEPS), run)
        found[compiled] = losses(run)
        assert bool(backend) is compiled
    assert len(found[True]) > 1 and found[True] == pytest.approx(found[False], rel=1e-4)
    assert set(backend) <= {"EncoderLayer", "DecoderLayer"}
    # Layers alike share compilations, and batches of all sizes do; scoring has none. Nothing falls back.
    assert 0 < counters["stats"]["unique_graphs"] <= 4 and not counters["graph_break"], counters


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_layer_is_one_graph_with_dropout(norm: Any) -> None:
    torch._dynamo.reset()
    layer = EncoderLayer(BertConfig(d_model=16, n_heads=2, d_ff=32, norm=norm)).train()
    layer.compile(backend="eager", dynamic=True, fullgraph=True)  # which raises where there would be two
    for n in (3, 5):
        assert layer(torch.randn(n, 4, 16), FULL_ATTENTION).shape == (n, 4, 16)


def test_what_was_compiled_is_not_computed_with(workshop: Any) -> None:
    """Else scores of batches of all kinds would take what variants there are from training."""
    torch._dynamo.reset()
    counters.clear()
    layer, x = EncoderLayer(BertConfig(d_model=16, n_heads=2, d_ff=32)), torch.randn(2, 4, 16)
    layer.compile(backend="eager")
    run_eager(lambda model: model(x, FULL_ATTENTION), workshop.configure_task("masked tokens", torch_compile=True))(
        layer
    )
    assert not counters["stats"]
    layer(x, FULL_ATTENTION)
    assert counters["stats"]["unique_graphs"] == 1


def test_a_model_without_layers_is_refused(workshop: Any) -> None:
    with pytest.raises(UsageError, match="torch_compile supports the models"):
        workshop.configure("rnn", torch_compile=True)


def test_a_compiler_that_fails_is_told_of(workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no compiler here")

    given = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, dynamic: given(self, backend=broken, dynamic=dynamic))
    torch._dynamo.reset()
    with pytest.raises(SystemFailure, match=r"could not compile the model: .*no compiler here") as failed:
        workshop.train(workshop.configure_task("masked tokens", torch_compile=True, **STEPS), tmp_path / "run")
    assert failed.value.where == "torch_compile" and "torch_compile to false" in str(failed.value.help)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_what_compiles_does_not_hear_the_signal_to_stop() -> None:
    """Sent to a whole group of processes, it would leave the training to wait forever for what is compiled."""
    code = """if True:
        from pathlib import Path
        from types import SimpleNamespace
        import torch
        from attnkit.engine.parallel import compile_layers
        compile_layers(torch.nn.Linear(1, 1), SimpleNamespace(torch_compile=True), torch.device("cuda"))
        from torch._inductor.async_compile import AsyncCompile
        assert AsyncCompile.process_pool.cache_info().currsize == 1
        for name in ("self", AsyncCompile.process_pool().process.pid):
            print(Path(f"/proc/{name}/status").read_text().split("SigBlk:")[1].split()[0])
    """
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2", "TORCHINDUCTOR_WORKER_START": "subprocess"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    own, workers = (int(mask, 16) >> signal.SIGTERM - 1 & 1 for mask in done.stdout.split())
    assert (own, workers) == (0, 1)


@pytest.mark.slow
def test_a_stop_that_ends_the_compiler_too_is_a_stop(
    workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ended(*_: Any) -> Any:
        asked.append(True)
        raise RuntimeError("the compiler was killed")

    given = nn.Module.compile
    config = workshop.configure_task("masked tokens", torch_compile=True, **STEPS)
    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "compile", lambda self, dynamic: given(self, backend=ended, dynamic=dynamic))
        torch._dynamo.reset()
        with pytest.raises(StoppedError, match="stopped at step 0"):
            workshop.train(config, tmp_path / "run", stop=lambda: bool(asked))
    torch._dynamo.reset()
    monkeypatch.setattr(nn.Module, "compile", lambda self, dynamic: given(self, backend="eager", dynamic=dynamic))
    workshop.train(config, tmp_path / "run")
    workshop.train(config, tmp_path / "whole")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.slow
def test_the_compiler_of_this_machine_gives_the_same(workshop: Any, tmp_path: Path) -> None:
    torch._dynamo.reset()
    found = []
    for compiled in (False, True):
        workshop.train(
            workshop.configure_task("masked tokens", torch_compile=compiled, **STEPS), tmp_path / f"{compiled}"
        )
        found.append(losses(tmp_path / f"{compiled}"))
    assert found[1] == pytest.approx(found[0], rel=1e-4)
