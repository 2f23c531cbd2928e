"""Folders of translation models of transformers, with random weights and SentencePiece models trained here."""

from __future__ import annotations

import io
import json
import random
import struct
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import transformers

from attnkit.data.pairs import make_batch
from attnkit.engine.seq2seq import pad_sources, seq2seq_loss

SYLLABLES = [
    "ba",
    "be",
    "bo",
    "da",
    "de",
    "do",
    "ing",
    "ung",
    "sch",
    "ein",
    "äu",
    "öß",
    "é",
    "lo",
    "ly",
    "日",
    "ма",
    "ни",
]
SHAPES: dict[str, dict[str, Any]] = {
    "shared": {"eos": 2.5},
    "two tables": {"share_encoder_decoder_embeddings": False, "d_model": 48, "activation_function": "gelu", "eos": 0.0},
    "untied, two vocabularies": {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "encoder_layers": 3,
        "activation_function": "relu",
        "separate": True,
        "eos": 4.0,
    },
}


@lru_cache
def sentences(seed: int = 3, n: int = 600) -> list[str]:
    """Return made-up sentences."""
    source = random.Random(seed)
    words = ["".join(source.choices(SYLLABLES, k=source.randint(1, 4))) for _ in range(300)]
    return [" ".join(source.choices(words, k=source.randint(1, 9))) + source.choice([".", "!", ""]) for _ in range(n)]


PARTS = [
    *SYLLABLES,
    " ",
    " ",
    "  ",
    "▁",
    "\t",
    "\u00a0",
    "\u3000",
    "\u200b",
    "\u0001",
    "\u001f",
    "\u007f",
    "\ufeff",
    "\r",
]
PARTS += [
    "e\u0301",
    "\u0301",
    "ﬁ",
    "①",
    "㌔",
    "Ａ",
    "ｶﾞ",
    "가",
    "語",
    "مر",
    "حبا",
    "\u0651",
    "🌱",
    "👩‍👩‍👧",
    "🇩🇪",
    "½",
    "<s>",
    "</s>",
]


@lru_cache
def odd_lines(n: int, seed: int = 8) -> list[str]:
    """Return lines of emoji, ideographs, Arabic, combining marks, spaces and controls; some are empty."""
    source = random.Random(seed)
    return ["".join(source.choices(PARTS, k=source.choice([0, 1, 2, 5, 9, 20]))) for _ in range(n)]


@lru_cache
def pieces(kind: str, odd: bool = False, more: int = 0) -> bytes:
    """Return a SentencePiece model trained on made-up sentences.

    Args:
        kind: unigram or bpe.
        odd: whether it is a larger one of odd lines too.
        more: number of further pieces at its end, which no text has.
    """
    made, lines = io.BytesIO(), list(sentences())
    lines += [line for line in odd_lines(3000, 7) if line.strip() and "<" not in line] if odd else []
    options = {"vocab_size": 600 if odd else 300, "model_type": kind, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=made, **options)
    return made.getvalue() + b"".join(_piece(f"w{number}") for number in range(more))


def _piece(name: str) -> bytes:
    """Return the field of a piece with a low score, which may be appended to a SentencePiece file."""
    content = bytes([10, len(name)]) + name.encode() + b"\x15" + struct.pack("<f", -1e4)
    return bytes([10, len(content)]) + content


def piece_names(raw: bytes) -> list[str]:
    """Return the pieces of a file without the three special ones."""
    model = sentencepiece.SentencePieceProcessor(model_proto=raw)
    return [model.id_to_piece(id) for id in range(3, len(model))]


def shaken(model: Any, words: float = 6, maps: float = 8) -> Any:
    """Give a model weights that say different things, norms and biases included.

    ``words`` and ``maps`` are the factors of embeddings and of linear maps.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "embed_positions" not in name:
                parameter.mul_(words if "embed" in name or "shared" in name else maps)
    return model


def _taken(changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Take out the options of ``pieces`` and of ``shaken``."""
    sizes, gains = ({key: changes.pop(key) for key in keys if key in changes} for keys in (SIZES, GAINS))
    return sizes, gains


SIZES, GAINS = ("odd", "more"), ("words", "maps")


def marian_folder(folder: Path, **changes: Any) -> Any:
    """Write a Marian as of OPUS-MT with random weights, and return its model."""
    folder.mkdir(parents=True)
    separate, eos, (sizes, gains) = changes.pop("separate", False), changes.pop("eos", 2.5), _taken(changes)
    files = {"source.spm": pieces("unigram", **sizes), "target.spm": pieces("bpe", **sizes)}
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    known = [set(piece_names(raw)) for raw in files.values()]
    lists = [["</s>", "<unk>", *sorted(own)] for own in (known if separate else [known[0] | known[1]])]
    longest = max(map(len, lists))
    for name, entries in zip(("vocab.json", "target_vocab.json"), lists, strict=False):
        entries[2:2] = [] if separate else [">>de<<", ">>fr<<"]
        entries += [f"other{number}" for number in range(longest - len(entries))] if separate else []
        entries.append("<pad>")
        (folder / name).write_text(json.dumps({entry: id for id, entry in enumerate(entries)}))
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    n, heads = len(lists[0]), 4
    shape = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    shape |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "max_position_embeddings": 200}
    ids = {"vocab_size": n, "pad_token_id": n - 1, "decoder_start_token_id": n - 1, "eos_token_id": 0}
    usual = {"scale_embedding": True, "activation_function": "swish", "dropout": 0.0}
    torch.manual_seed(5)
    config = transformers.MarianConfig(**{**shape, **ids, **usual, **changes})
    model = shaken(transformers.MarianMTModel(config).eval(), **gains)
    with torch.no_grad():
        for part in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens, model.lm_head):
            part.weight[n - 1] = 0
        model.final_logits_bias.normal_(std=0.5)
        model.final_logits_bias[0, 0] += eos  # some sentences should be short, others long
        model.final_logits_bias[0, n - 1] = 0
    model.save_pretrained(folder)
    return model


def tokenizer_of(folder: Path) -> Any:
    """Return the tokenizer of transformers, which warns of a package that it does not use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoTokenizer.from_pretrained(folder)


SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


def m2m_model(folder: Path, n: int, seed: int = 10, end: float = 2.0, **changes: Any) -> Any:
    """Write the model of an M2M100 or NLLB-200 with random weights."""
    shape = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    shape |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 200}
    _, gains = _taken(changes)
    rest = {"dropout": 0.0, "attention_dropout": 0.0, "vocab_size": n, **changes}
    rest |= {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
    torch.manual_seed(seed)
    model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**{**shape, **rest})).eval()
    shaken(model, **gains)
    with torch.no_grad():
        model.model.decoder.layer_norm.bias.add_(model.model.shared.weight[2] * end)  # some sentences should be short
    model.save_pretrained(folder)
    return model


def m2m_folder(folder: Path, **changes: Any) -> Any:
    """Write an M2M100: pieces in ``vocab.json``, then a hundred languages and eight more words."""
    folder.mkdir(parents=True)
    raw = pieces("bpe", **{key: changes.pop(key) for key in SIZES if key in changes})
    (folder / "sentencepiece.bpe.model").write_bytes(raw)
    names = SPECIALS + sorted(piece_names(raw))[:-5]  # some pieces the network does not know
    (folder / "vocab.json").write_text(json.dumps({name: id for id, name in enumerate(names)}))
    tokenizer = transformers.M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"))
    tokenizer.save_pretrained(folder)
    codes = [f"__{code}__" for code in tokenizer.lang_code_to_id]
    (folder / "tokenizer_config.json").write_text(json.dumps({"additional_special_tokens": codes}))
    return m2m_model(folder, len(names) + 108, **changes)


def nllb_folder(folder: Path, **changes: Any) -> Any:
    """Write an NLLB-200 as it is published: ids are one above those of its SentencePiece model.

    ``languages`` are its codes. With ``saved``, the tokenizer is as transformers saves it: its mask comes before them.
    """
    folder.mkdir(parents=True)
    raw = pieces("bpe", **{key: changes.pop(key) for key in SIZES if key in changes})
    (folder / "sentencepiece.bpe.model").write_bytes(raw)
    codes = changes.pop("languages", ["ace_Arab", "deu_Latn", "eng_Latn", "zho_Hans"])
    names, added = SPECIALS + piece_names(raw), [*codes, "<mask>"]
    if changes.pop("saved", False):
        special = {"extra_special_tokens": codes, "src_lang": "eng_Latn"}
        transformers.NllbTokenizer.from_pretrained(folder, **special).save_pretrained(folder)
        return m2m_model(folder, len(names) + len(added), **changes)
    tokens = [(id, name) for id, name in enumerate(names + added) if name in SPECIALS + added]
    tree = {"model": {"type": "BPE", "vocab": {name: id for id, name in enumerate(names)}}}
    tree |= {"added_tokens": [{"id": id, "content": name} for id, name in tokens]}
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    return m2m_model(folder, len(names) + len(added), **changes)


def mbart_folder(folder: Path, **changes: Any) -> Any:
    """Write an mBART-50: ids are one above those of its SentencePiece model, then 52 languages and a mask."""
    folder.mkdir(parents=True)
    sizes, gains = _taken(changes)
    raw = pieces("unigram", **sizes)
    (folder / "sentencepiece.bpe.model").write_bytes(raw)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MBart50Tokenizer"}))
    shape = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    shape |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 200}
    rest = {"dropout": 0.0, "scale_embedding": True, "decoder_start_token_id": 2, "seed": 10, "end": 2.0, **changes}
    seed, end, boost = rest.pop("seed"), rest.pop("end"), rest.pop("boost", 3.0)
    torch.manual_seed(seed)
    n = len(piece_names(raw)) + 57
    config = transformers.MBartConfig(vocab_size=n, **{**shape, **rest})
    model = shaken(transformers.MBartForConditionalGeneration(config).eval(), **gains)
    with torch.no_grad():
        for part in (model.model.encoder, model.model.decoder):
            part.embed_positions.weight.normal_(std=1.0)
        for layer in model.model.decoder.layers:
            layer.encoder_attn.out_proj.weight.mul_(boost)
        model.final_logits_bias.normal_(std=0.5)
        model.final_logits_bias[0, 2] += end  # some sentences should be short
    model.save_pretrained(folder)
    return model


def three_steps(
    ours: Any, theirs: Any, rows: list[list[list[int]]], orders: tuple[torch.Tensor, torch.Tensor], pad: int
) -> list[tuple[float, float]]:
    """Train two models on three batches of 20 pairs, and return their losses per token.

    Args:
        ours: the module of attnkit, in training mode.
        theirs: the model of transformers, in training mode.
        rows: our ids of sources and of targets, which are paired in reverse.
        orders: their id by ours, of sources and targets.
        pad: their id of padding.
    """
    loss, losses = seq2seq_loss(ours, torch.device("cpu"), 0.0), []
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0) for model in (ours, theirs)]
    for step in range(3):
        part = slice(20 * step, 20 * step + 20)
        src, tgt = rows[0][part], rows[1][part][::-1]
        ragged = [(np.concatenate(side), np.array([len(row) for row in side])) for side in (src, tgt)]
        term = loss(make_batch(*ragged))["nll"].total / sum(len(row) + 1 for row in tgt)
        labels = torch.nn.utils.rnn.pad_sequence([orders[1][[*row, 2]] for row in tgt], True, -100)
        ids, real = pad_sources(src, torch.device("cpu"))
        assert real is not None
        given = {"input_ids": torch.where(real, orders[0][ids], pad), "attention_mask": real.long()}
        found = theirs(**given, labels=labels).loss
        losses.append((float(term.detach()), float(found.detach())))
        for value, optimizer in zip((term, found), optimizers, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    return losses
