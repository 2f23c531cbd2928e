"""The GPU's kernels: what is written beside them for a CPU gives what masks and autograd give, and they give the same.

The kernels themselves need a GPU, or Triton: its interpreter runs them on a CPU.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from packed_models import BOUNDS, PASSAGES, SIZES, make
from torch import Tensor

from attnkit.models import layers
from attnkit.models.attention.attend import PackedAttention, Passages, supports_packed
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout

LAYOUTS = {"mixed": PackedLayout.packed(1, PASSAGES, BOUNDS), "whole rows": PackedLayout.unpacked(3)}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Take the packed path on a CPU, where dropout allows it; note each call."""
    found: list[Tensor] = []
    given = PackedAttention.context

    def context(self: PackedAttention, projected: Tensor, n_heads: int) -> Tensor:
        found.append(projected)
        return given(self, projected, n_heads)

    monkeypatch.setattr(PackedAttention, "context", context)
    monkeypatch.setattr(layers, "supports_packed", lambda x, d_head, dropout: not dropout)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", ["learned", "rotary", "sinusoidal"])
@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_it_gives_what_masks_give_and_the_same_gradients(
    kind: str, positions: str, layout: str, calls: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids, found = make(kind, positions=positions), torch.randint(4, 50, (3, 12)), []
    for packed in (True, False):
        if not packed:
            assert len(calls) == SIZES["n_layers"]
            monkeypatch.setattr(layers, "supports_packed", supports_packed)
        model.zero_grad()
        hidden = model.hidden(ids, LAYOUTS[layout])
        hidden.square().sum().backward()
        found.append([hidden.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert len(calls) == SIZES["n_layers"]  # none on the second way
    # The rotary table is kept in float32.
    close = {"rtol": 1e-5, "atol": 1e-5} if positions == "rotary" else {"rtol": 1e-9, "atol": 1e-9}
    for own, masked in zip(*found, strict=True):
        torch.testing.assert_close(own, masked, **close)


@pytest.mark.parametrize(
    "fields", [{"positions": "alibi"}, {"alignment": "additive"}, {"attention_dropout": 0.1}], ids=str
)
def test_other_attention_takes_masks(fields: dict[str, Any], calls: list[Tensor]) -> None:
    make("bert", **fields).hidden(torch.randint(4, 50, (3, 12)), LAYOUTS["mixed"])
    assert not calls


def test_weights_and_caches_are_computed_with_heads(calls: list[Tensor]) -> None:
    model, ids = make("gpt"), torch.randint(4, 50, (3, 12))
    assert isinstance(model, Gpt)
    model.attention_weights(ids, LAYOUTS["mixed"])
    model.start(ids, None, 1, 4)
    assert not calls


def test_padded_rows_take_masks(calls: list[Tensor]) -> None:
    real = torch.arange(12) < torch.tensor([[12], [5], [3]])
    make("bert").hidden(torch.randint(4, 50, (3, 12)), PackedLayout.padded(real))
    assert not calls


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own doing
def test_a_compiled_layer_calls_it_without_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "supports_packed", lambda x, d_head, dropout: not dropout)
    torch._dynamo.reset()
    model, ids = make("bert"), torch.randint(4, 50, (3, 12))
    plain = model.hidden(ids, LAYOUTS["mixed"])
    for layer in model.layers:
        layer.compile(dynamic=True, backend="aot_eager", fullgraph=True)
    hidden = model.hidden(ids, LAYOUTS["mixed"])
    torch.testing.assert_close(hidden, plain, rtol=1e-9, atol=1e-9)
    hidden.sum().backward()
    torch._dynamo.reset()


@pytest.mark.parametrize("n_rows", [1, 3])
def test_passages(n_rows: int) -> None:
    bounds = torch.tensor([0, 5, 8, *(8 * row for row in range(2, n_rows + 1))], dtype=torch.int32)
    passages = Passages.bounded(bounds, n_rows, 8)
    starts, ends = [0] * 5 + [5] * 3, [5] * 5 + [8] * 3
    for row in range(1, n_rows):
        starts, ends = starts + [8 * row] * 8, ends + [8 * row + 8] * 8
    assert passages.starts.tolist() == starts and passages.ends.tolist() == ends
    whole = Passages.whole(n_rows, 8, torch.device("cpu"))
    assert whole.starts.tolist() == [8 * (at // 8) for at in range(8 * n_rows)]
    assert (whole.ends - whole.starts == 8).all()
    within = [length for length in (64, 96, 128, 256) if Passages.whole(n_rows, length, torch.device("cpu")).within]
    assert within == [128]


def test_a_cpu_never_takes_it() -> None:
    assert not supports_packed(torch.zeros(1, dtype=torch.bfloat16), 64, 0.0)


CHECK = Path(__file__).with_name("gpu_kernels_check.py")


@pytest.mark.skipif(
    torch.cuda.is_available() or importlib.util.find_spec("triton") is None, reason="needs Triton, and no GPU"
)
def test_the_kernels_in_tritons_interpreter() -> None:
    subprocess.run([sys.executable, CHECK], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_kernels_on_a_gpu() -> None:
    subprocess.run([sys.executable, CHECK], check=True)
