"""Models of the default functions run the operators that they ran before there were others, and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from attnkit.data.text_classification import document_batch
from attnkit.models import positions
from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.han import HierarchicalAttentionNetwork
from attnkit.models.recurrent_config import HanConfig
from attnkit.models.translation import build_model

SIZES: dict[str, Any] = {"d_model": 16, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2, "d_ff": 24}
CONFIGS = {
    "transformer": TransformerConfig(**SIZES),
    "transformer, relative": TransformerConfig(**SIZES, positions="relative"),
    "rnn, additive": RnnConfig(d_model=6, d_hidden=8),
    "rnn, general, feeding": RnnConfig(
        d_model=6, d_hidden=8, alignment="general", attention_query="current", input_feeding=True
    ),
}
VIEWS = {
    *(
        "view",
        "t",
        "transpose",
        "transpose_",
        "unsqueeze",
        "squeeze",
        "slice",
        "select",
        "expand",
        "expand_as",
        "permute",
    ),
    *(
        "unbind",
        "split",
        "split_with_sizes",
        "unsafe_split",
        "chunk",
        "as_strided",
        "_unsafe_view",
        "reshape",
        "diagonal",
    ),
    *("detach", "contiguous", "to", "empty", "new_empty", "new_empty_strided", "arange", "scalar_tensor"),
    *("is_nonzero", "lift_fresh"),
}
"""What computes nothing."""
RECORDED = {
    ("transformer", "train"): (
        "_log_softmax 1, _log_softmax_backward_data 1, _scaled_dot_product_flash_attention_for_cpu 6, "
        "_scaled_dot_product_flash_attention_for_cpu_backward 6, add 24, addmm 22, clone 11, copy_ 12, "
        "embedding 2, embedding_dense_backward 2, ge 12, mm 44, mul 28, mul_ 12, native_layer_norm 10, "
        "native_layer_norm_backward 10, ne 1, new_zeros 4, nll_loss_backward 1, nll_loss_forward 1, "
        "ones_like 1, random_ 12, relu_ 4, stack 8, sum 22, threshold_backward 4, where 4"
    ),
    ("transformer", "decode"): (
        "add 26, add_ 12, all 2, bitwise_not 1, cat 2, copy_ 13, embedding 4, fill_ 7, gather 3, layer_norm "
        "22, linear 48, masked_fill_ 1, matmul 24, mul 10, mul_ 1, ne 1, new_full 1, new_zeros 1, relu_ 8, "
        "scaled_dot_product_attention 2, softmax 12, sub 3, zeros 5, zeros_like 1"
    ),
    ("transformer, relative", "train"): (
        "_log_softmax 1, _log_softmax_backward_data 1, _safe_softmax 4, "
        "_scaled_dot_product_flash_attention_for_cpu 2, _scaled_dot_product_flash_attention_for_cpu_backward "
        "2, _softmax_backward_data 4, _to_copy 4, abs 1, add 33, addmm 22, bmm 24, clamp 5, clone 31, copy_ "
        "12, div 2, embedding 2, embedding_dense_backward 2, ge 12, gt 1, index 2, index_put 2, log 2, lt 2, "
        "mm 44, mul 47, mul_ 12, native_layer_norm 10, native_layer_norm_backward 10, ne 1, neg 1, new_zeros "
        "6, nll_loss_backward 1, nll_loss_forward 1, ones 2, ones_like 1, random_ 12, relu_ 4, stack 7, sub "
        "2, sum 26, threshold_backward 4, tril 2, where 12"
    ),
    ("transformer, relative", "decode"): (
        "abs 1, add 34, add_ 12, all 2, bitwise_not 1, cat 2, clamp 11, copy_ 13, div 4, embedding 4, fill_ "
        "7, gather 3, gt 1, index 4, layer_norm 22, linear 48, log 4, lt 4, masked_fill_ 1, matmul 24, mul "
        "15, mul_ 1, ne 1, neg 3, new_full 1, new_zeros 1, relu_ 8, scaled_dot_product_attention 2, softmax "
        "12, sub 4, where 6, zeros 5, zeros_like 1"
    ),
    ("rnn, additive", "train"): (
        "_log_softmax 1, _log_softmax_backward_data 1, _softmax 4, _softmax_backward_data 4, add 121, add_ "
        "30, addcmul 4, addmm 19, bitwise_not 4, bmm 12, cat 37, clamp 1, clone 22, embedding 2, "
        "embedding_dense_backward 2, gather 4, ge 4, lt 2, masked_fill 16, mm 66, mul 84, mul_ 24, mv 8, ne "
        "1, neg 14, new_zeros 6, nll_loss_backward 1, nll_loss_forward 1, ones_like 1, random_ 4, scatter_add "
        "4, sigmoid 8, sigmoid_ 20, sigmoid_backward 28, stack 6, sub 20, sum 26, tanh 6, tanh_ 14, "
        "tanh_backward 20, where 2"
    ),
    ("rnn, additive", "decode"): (
        "add 15, addcmul 3, bitwise_not 3, cat 6, clamp 1, embedding 4, gather 7, gru 2, linear 20, lt 2, "
        "masked_fill 6, matmul 6, mul 7, ne 1, new_zeros 2, sigmoid 6, softmax 3, sub 9, sum 1, tanh 7, tanh_ "
        "3, where 2, zeros 3"
    ),
    ("rnn, general, feeding", "train"): (
        "_log_softmax 1, _log_softmax_backward_data 1, _softmax 4, _softmax_backward_data 4, add 115, add_ "
        "30, addcmul 4, addmm 21, bitwise_not 4, bmm 24, cat 39, clamp 1, clone 23, embedding 2, "
        "embedding_dense_backward 2, gather 4, ge 7, lt 2, masked_fill 16, mm 60, mul 86, mul_ 27, ne 1, neg "
        "14, new_zeros 7, nll_loss_backward 1, nll_loss_forward 1, ones_like 1, random_ 7, scatter_add 4, "
        "sigmoid 8, sigmoid_ 20, sigmoid_backward 28, stack 6, sub 20, sum 24, tanh 9, tanh_ 10, "
        "tanh_backward 19, where 2"
    ),
    ("rnn, general, feeding", "decode"): (
        "add 12, addcmul 3, bitwise_not 3, cat 6, clamp 1, embedding 4, gather 10, gru 2, linear 17, lt 2, "
        "masked_fill 6, matmul 6, mul 7, ne 1, new_zeros 3, sigmoid 6, softmax 3, sub 9, sum 1, tanh 7, where "
        "2, zeros 3"
    ),
}
"""Counted with the code before the other functions came, in torch 2.13 and float64."""
DOCUMENTS = (
    "_log_softmax 1, _log_softmax_backward_data 1, _softmax 2, _softmax_backward_data 2, add 52, add_ 30, addmm 13, "
    "bitwise_not 4, bmm 6, cat 24, clamp 2, clone 24, embedding 1, embedding_dense_backward 1, gather 8, ge 3, index "
    "2, index_put 1, lt 4, masked_fill 11, mm 34, mul 48, mul_ 23, mv 4, neg 10, new_zeros 9, nll_loss_backward 1, "
    "nll_loss_forward 1, ones_like 1, random_ 3, scatter_add 4, sigmoid_ 20, sigmoid_backward 20, stack 12, sub 22, "
    "sum 19, tanh 2, tanh_ 10, tanh_backward 12, where 4"
)
"""The same for a training step of the document classifier."""
SRC, TGT = torch.tensor([[5, 6, 7, 2, 0], [8, 9, 10, 11, 2]]), torch.tensor([[1, 5, 9, 4], [1, 6, 7, 8]])


class Counting(TorchDispatchMode):
    """Counts every call of an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.").split(".")[0]
        if name not in VIEWS:
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))


def train(model: Any) -> None:
    F.cross_entropy(model.head(model.hidden(SRC, SRC != 0, TGT)).flatten(0, 1), TGT.flatten()).backward()


@torch.inference_mode()
def decode(model: Any) -> None:
    state = model.eval().start(SRC, SRC != 0, 2, 4)
    for words in (TGT[:, :1], TGT[:, 1:3], TGT[:, 1:3]):
        hidden, state = model.step(words, state)
        model.head(hidden)
        state = state.reorder_beams(torch.zeros(2, 2, dtype=torch.int64))


WORK: dict[str, Callable[[Any], None]] = {"train": train, "decode": decode}


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="another torch cuts operations differently")
@pytest.mark.parametrize(("name", "work"), RECORDED)
def test_default_models_run_the_recorded_operators(name: str, work: str) -> None:
    torch.manual_seed(0)
    model: Any = build_model(CONFIGS[name], 13, 13)
    model.double()
    for table in (positions._angles, positions._interleaved):
        table.cache_clear()  # made once, by whoever comes first: here before decoding, and within the step of training
    if work == "decode":
        decode(model)
    with Counting() as counting:
        WORK[work](model)
    assert ", ".join(f"{name} {n}" for name, n in sorted(counting.calls.items())) == RECORDED[name, work]


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="another torch cuts operations differently")
def test_the_default_document_classifier_runs_the_recorded_operators() -> None:
    torch.manual_seed(0)
    config = HanConfig(d_model=6, d_word=8, d_sentence=10, d_attention=7)
    model = HierarchicalAttentionNetwork(config, 13, 3).double()
    inputs = document_batch([[[5, 6, 7], [8, 9]], [[10]]]).inputs
    with Counting() as counting:
        F.cross_entropy(model.output(model.hidden(*inputs)), torch.tensor([0, 2])).backward()
    assert ", ".join(f"{name} {n}" for name, n in sorted(counting.calls.items())) == DOCUMENTS


def test_default_heads_hold_nothing() -> None:
    model: Any = build_model(CONFIGS["transformer"], 13, 13)
    assert [name for name in model.state_dict() if "heads" in name] == []
