"""Hugging Face's MarianMTModel with the weights of an attnkit Transformer.

``write_marian`` runs under attnkit's interpreter and makes the folder; the rest runs under the peers', without attnkit.
The output bias is a buffer there, which is not trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAD = 0
LONGEST = 512


def write_marian(folder: Path, config: Any, model: Any) -> None:
    """Write a Transformer of one vocabulary as ``attnkit export --to huggingface`` lays it out, without a tokenizer."""
    import json

    from safetensors.torch import save_file

    from attnkit.formats.exportable import check_marian
    from attnkit.formats.huggingface.config import marian_json
    from attnkit.formats.huggingface.translation_layout import to_marian

    check_marian(config)
    folder.mkdir(exist_ok=True)
    state = model.state_dict()
    size = len(state["output.bias"])
    (folder / "config.json").write_text(json.dumps(marian_json(config, (size, size), LONGEST)))
    save_file(to_marian(config, state), folder / "model.safetensors", metadata={"format": "pt"})


def load_marian(folder: Path, dropout: float) -> Any:
    """Return the model of a folder of ``write_marian``."""
    from transformers import MarianMTModel

    return MarianMTModel.from_pretrained(folder, dropout=dropout, attention_dropout=0.0, activation_dropout=0.0)


def pad(rows: list[list[int]], filler: int = PAD) -> Any:
    """Return rows as one tensor, filled up at the end."""
    import torch

    length = max(len(row) for row in rows)
    return torch.tensor([[*row, *[filler] * (length - len(row))] for row in rows])
