"""Small language models and packed rows for tests of attention."""

from __future__ import annotations

from typing import Any

import torch

from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.language_config import BertConfig, GptConfig

SIZES: dict[str, Any] = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "max_length": 64}
STILL: dict[str, Any] = {**SIZES, "dropout": 0.0, "attention_dropout": 0.0}
PASSAGES = torch.tensor([[0] * 12, [0] * 5 + [1] * 7, [0] * 3 + [1] * 2 + [2] * 4 + [3] * 3])
BOUNDS = torch.tensor([0, 12, 17, 24, 27, 29, 33, 36], dtype=torch.int32)


def make(kind: str, **fields: Any) -> Bert | Gpt:
    torch.manual_seed(1)
    model = Bert(BertConfig(**{**STILL, **fields}), 50) if kind == "bert" else Gpt(GptConfig(**{**STILL, **fields}), 50)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(std=0.3))
    return model.double()
