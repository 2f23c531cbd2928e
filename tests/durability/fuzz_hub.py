"""Damaged folders of a Llama, its weights in shards, for ``fuzz_loaders``."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import safetensors.torch
import torch
from mutations import mutate_bytes, mutate_json, mutate_safetensors

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.formats.huggingface import layout
from attnkit.formats.huggingface.llama import llama_json
from attnkit.models.gpt import Gpt
from attnkit.models.language_config import GptConfig
from attnkit.models.position_tables import RopeScaling
from attnkit.tasks.language_modeling.generate import Generator, search_config
from attnkit.text.sentencepiece import bpe_merges
from attnkit.text.sentencepiece_file import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    SentencePieceEntry,
    read_sentencepiece,
    write_byte_pairs,
)

HUB = "hub-llama"  #: good folder
INDEX = "model.safetensors.index.json"
N_SHARDS = 3


def make_llama(folder: Path, kind: str = "llama") -> None:
    """Write a Llama or Mistral with both forms of its tokenizer."""
    folder.mkdir()
    pieces = [SentencePieceEntry("<unk>", 0.0, UNKNOWN)]
    pieces += [SentencePieceEntry(name, 0.0, CONTROL) for name in ("<s>", "</s>")]
    pieces += [SentencePieceEntry(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    words = ["▁", *"0123ab", "▁0", "▁1", "23", "ab", "▁ab", "▁▁"]
    pieces += [SentencePieceEntry(word, -float(n), NORMAL) for n, word in enumerate(words)]
    raw = write_byte_pairs(pieces, True)
    (folder / "tokenizer.model").write_bytes(raw)
    names = {piece.text: id for id, piece in enumerate(pieces)}
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}]
    decoders += [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    tree = {
        "added_tokens": [{"id": id, "content": pieces[id].text} for id in range(3)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": names,
            "merges": [list(pair) for pair in bpe_merges(read_sentencepiece(raw))],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    shape = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 24, "n_key_value_heads": 1, "head_width": 12}
    options = {"positions": "rotary", "glu": True, "activation": "silu", "normalization": "rms", "bias": False}
    scaling = RopeScaling(kind="llama3", factor=2.0, original_length=16)
    config = GptConfig.model_validate({**shape, **options, "rope_scaling": scaling, "max_length": 32})
    torch.manual_seed(1)
    links = layout.llama_body(config) + layout.gpt_head(config)
    tensors = layout.to_theirs(links, Gpt(config, len(pieces)).state_dict())
    (folder / "config.json").write_text(json.dumps(llama_json(config, len(pieces), "silu", {}, kind)))
    listed = {name: f"model-{n % N_SHARDS}.safetensors" for n, name in enumerate(tensors)}
    for file in {*listed.values()}:
        own = {name: tensor for name, tensor in tensors.items() if listed[name] == file}
        safetensors.torch.save_file(own, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": listed}))


def import_damaged_llama(good: Path, work: Path, source: random.Random) -> None:
    """Import a damaged folder; generate and export if that succeeds."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    folder = Path(shutil.copytree(good / HUB, work / "hub"))
    if source.random() < 0.5:
        (folder / "tokenizer.json").unlink()
    changes = {
        "config.json": mutate_json,
        INDEX: mutate_json,
        f"model-{source.randrange(N_SHARDS)}.safetensors": mutate_safetensors,
        "tokenizer.json": mutate_json,
        "tokenizer.model": mutate_bytes,
        "tokenizer_config.json": mutate_json,
    }
    present = [name for name in changes if (folder / name).exists()]
    for name in source.sample(present, source.choice((1, 1, 2))):
        (folder / name).write_bytes(changes[name]((folder / name).read_bytes(), source))
    run = import_huggingface(folder, work / "run").path
    opened = load_model(run, "clm", device="cpu")
    Generator(opened, search_config({"max_length": 3}), engine="torch").generate(["0 1 ab é"])
    export_huggingface(run, work / "back")
