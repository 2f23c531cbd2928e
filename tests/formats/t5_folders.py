"""Folders of T5 and mT5 of transformers, with random weights and SentencePiece models trained here."""

from __future__ import annotations

import io
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from translators import odd_lines, sentences

GATED = {"feed_forward_proj": "gated-gelu"}
T5_SHAPES: dict[str, dict[str, Any]] = {
    "t5": {"num_layers": 3, "num_decoder_layers": 2, "end": 8.0},
    "t5 v1.1": {**GATED, "tied": False, "num_layers": 3, "num_heads": 2, "seed": 3},
    "mt5": {**GATED, "kind": "mt5", "tied": False, "d_kv": 12, "num_heads": 3, "extra_ids": 0, "seed": 4},
}
"""Name -> changes: mT5's heads have 36 dimensions together, its width is 32."""


@lru_cache
def t5_pieces(odd: bool = False) -> bytes:
    """Return a unigram model with T5's special tokens, of made-up sentences and maybe odd lines."""
    made, lines = io.BytesIO(), list(sentences())
    lines += [line for line in odd_lines(3000, 7) if line.strip() and "<" not in line] if odd else []
    options = {"vocab_size": 600 if odd else 300, "model_type": "unigram", "hard_vocab_limit": False}
    options |= {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=made, **options)
    return made.getvalue()


def t5_folder(folder: Path, **changes: Any) -> Any:
    """Write a T5 or mT5 with random weights, and return its model.

    ``tied`` False gives it an output layer of its own, ``end`` makes EOS likelier. The file config.json is as it was
    published: it says whether the output is tied.
    """
    folder.mkdir(parents=True)
    given = {"kind": "t5", "tied": True, "odd": False, "extra_ids": 100, "seed": 2, "end": 1.0, **changes}
    kind, tied, odd, extra_ids, seed, end = (
        given.pop(key) for key in ("kind", "tied", "odd", "extra_ids", "seed", "end")
    )
    raw = t5_pieces(odd)
    (folder / "spiece.model").write_bytes(raw)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": extra_ids, "pad_token": "<pad>"})
    )
    n = len(sentencepiece.SentencePieceProcessor(model_proto=raw)) + extra_ids + 5
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
    ids = {"vocab_size": n, "decoder_start_token_id": 0}
    parts = transformers.T5Config, transformers.T5ForConditionalGeneration
    if kind == "mt5":
        parts = transformers.MT5Config, transformers.MT5ForConditionalGeneration
    torch.manual_seed(seed)
    model = parts[1](parts[0](**{**shape, **ids, **given}, tie_word_embeddings=tied)).eval()
    with torch.no_grad():
        if not tied:
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.shared.weight) * 0.5)
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "relative" in name:
                parameter.normal_(std=2.0)
            elif name.endswith((".o.weight", ".wo.weight")):
                parameter.mul_(3)
        model.lm_head.weight[1] += end * model.lm_head.weight.std() * torch.randn(32).sign() * 0.3
    model.save_pretrained(folder)
    tree = json.loads((folder / "config.json").read_text())
    del tree["scale_decoder_outputs" if kind == "t5" else "is_gated_act"]
    (folder / "config.json").write_text(json.dumps({**tree, "tie_word_embeddings": tied}))
    return model
