"""Folders of encoders of transformers with random weights, and lines of text of every kind for their tokenizers."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from hub_runs import shaken
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

WORDS = ["the", "quick", "fox", "größer", "été", "don't", "chien", "der", "unlikely", "3.14", "x=1;", "日本語", "текст"]
ODD = [
    "👩‍🚀",
    "🚀",
    "🇫🇷",
    "漢字",
    "カタカナ",
    "ｶﾀ",
    "한국어",
    "شكرا",
    "مرحبًا",
    "नमस्ते",
    "e\u0301",
    "x\u0323\u0307",
    "ﬁn",
    "①",
]
ODD += [
    "½",
    "Å",
    "İ",
    "ß",
    "Σς",
    "\t",
    "\u00a0",
    "\u3000",
    "\u200b",
    "\u2028",
    "\ufeff",
    "\x01",
    "\x7f",
    "\x85",
    "▁",
    "…",
]
ODD += ["▁", "…", "¡", "—", "''", "“q”", "a_b", "##s", "Ġ", "\u0000", "\r", "\u00ad"]
COMBINING = ["\u0301", "\u0308", "\u0327", "\u064b", "\u0940", "\uff9e"]
LOST = [*COMBINING, "\x85"]
"""Marks that ``Precompiled`` of tokenizers loses behind some characters, and what it splits off as white space."""


@lru_cache
def odd_lines(n: int, seed: int = 1) -> list[str]:
    """Return lines of emoji, many scripts, marks, control characters and spaces in odd places; some are empty."""
    source, made = random.Random(seed), ["", " ", "   ", "the", " the", "  the  fox ", "\ttab", "▁the", "été x" * 99]
    for _ in range(n - len(made)):
        parts = [source.choice(WORDS if source.random() < 0.6 else ODD) for _ in range(source.randint(0, 9))]
        parts = [part + source.choice(COMBINING) if source.random() < 0.04 else part for part in parts]
        line = "".join(part + source.choice((" ", " ", " ", "  ", "", ".")) for part in parts)
        made.append(source.choice(("", "", "", " ")) + (line if source.random() < 0.8 else line.strip()))
    return made


@lru_cache
def unigram_pieces(n: int = 400) -> bytes:
    """Return a SentencePiece model with the normalization of XLM-RoBERTa."""
    made, lines = io.BytesIO(), [line for line in odd_lines(3000, 7) if line.strip() and "\0" not in line]
    options = {"vocab_size": n, "model_type": "unigram", "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=made, **options)
    return made.getvalue()


def save(folder: Path, model: Any, seed: int = 1) -> Any:
    """Save a model in which all weights say something."""
    torch.manual_seed(seed)
    shaken(model)
    for name, parameter in model.named_parameters():
        if name.endswith("token_type_embeddings.weight") and len(parameter) == 1:
            parameter.data.zero_()  # attnkit adds it to the positions
    model.save_pretrained(folder)
    return model


SHAPES: tuple[dict[str, Any], ...] = (
    {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64},
    {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 80},
    {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 100},
)
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def xlm_roberta(folder: Path, shape: int = 0, kind: Any = transformers.XLMRobertaForMaskedLM, **changes: Any) -> Any:
    """Write an XLM-RoBERTa as it was published: with both files of its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentencepiece.bpe.model").write_bytes(unigram_pieces())
    tokenizer = transformers.XLMRobertaTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    other = ({}, {"tie_word_embeddings": False}, {"max_position_embeddings": 90, "layer_norm_eps": 1e-12})[shape]
    config = {"max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
    config |= {"bos_token_id": 0, "eos_token_id": 2, **SHAPES[shape], **NO_DROPOUT, **other, **changes}
    return save(folder, kind(transformers.XLMRobertaConfig(vocab_size=len(tokenizer), **config)), shape)


WORD_PIECES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyzé,.!?';=—“”_#"]
WORD_PIECES += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyzéъ"] + [*"0123456789日本語漢字ßüµ①½текс"]
WORD_PIECES += ["the", "fox", "##ing", "quick", "été", "der", "großer", "##0", "##1", "##4", "##т", "##е", "##к", "##с"]


def word_pieces(folder: Path, cased: bool, **settings: Any) -> int:
    """Write a tokenizer of BERT, and return the number of rows of its model."""
    transformers.BertTokenizer(
        vocab={word: i for i, word in enumerate(dict.fromkeys(WORD_PIECES))}, do_lower_case=not cased, **settings
    ).save_pretrained(folder)
    return len(dict.fromkeys(WORD_PIECES)) + 3


def distilbert(folder: Path, shape: int = 0, kind: Any = transformers.DistilBertForMaskedLM, **changes: Any) -> Any:
    """Write a DistilBERT; the second untied, the third with sinusoids."""
    n_rows = word_pieces(folder, cased=shape == 1)
    names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
    names["intermediate_size"] = "hidden_dim"
    config = {names[key]: value for key, value in SHAPES[shape].items()} | {"dropout": 0.0, "attention_dropout": 0.0}
    config |= ({}, {"tie_word_embeddings": False, "activation": "relu"}, {"sinusoidal_pos_embds": True})[shape]
    config = {"vocab_size": n_rows, "max_position_embeddings": 64, **config, **changes}
    model = kind(transformers.DistilBertConfig(**config))
    torch.manual_seed(shape)
    table = model.distilbert.embeddings.position_embeddings.weight
    table.requires_grad_(shape < 2)  # sinusoids are not trained
    return save(folder, model, shape)


def bert(folder: Path, shape: int = 0, kind: Any = transformers.BertForMaskedLM, **changes: Any) -> Any:
    """Write a BERT; the second untied and cased, the third with one segment and another activation."""
    n_rows = word_pieces(folder, cased=shape == 1)
    other: Any = ({}, {"tie_word_embeddings": False}, {"type_vocab_size": 1, "hidden_act": "gelu_new"})[shape]
    config = {"max_position_embeddings": 64, **SHAPES[shape], **NO_DROPOUT, **other, **changes}
    return save(folder, kind(transformers.BertConfig(vocab_size=n_rows, **config)), shape)


def roformer(folder: Path, shape: int = 0, kind: Any = transformers.RoFormerForMaskedLM, **changes: Any) -> Any:
    """Write a RoFormer; the second untied, the third with another activation."""
    n_rows = word_pieces(folder, cased=False)
    other: Any = ({}, {"tie_word_embeddings": False}, {"hidden_act": "relu", "layer_norm_eps": 1e-6})[shape]
    config = {"max_position_embeddings": 64, **SHAPES[shape], **NO_DROPOUT, **other, **changes}
    return save(folder, kind(transformers.RoFormerConfig(vocab_size=n_rows, **config)), shape)


def electra(folder: Path, shape: int = 0, kind: Any = transformers.ElectraForMaskedLM, **changes: Any) -> Any:
    """Write an ELECTRA; the first two with narrow embeddings, the third with one segment."""
    n_rows = word_pieces(folder, cased=shape == 2)
    other = ({"embedding_size": 16}, {"embedding_size": 20, "tie_word_embeddings": False}, {"type_vocab_size": 1})[
        shape
    ]
    config = {"embedding_size": SHAPES[shape]["hidden_size"], **SHAPES[shape], **NO_DROPOUT, **other, **changes}
    config = {"max_position_embeddings": 64, **config}
    return save(folder, kind(transformers.ElectraConfig(vocab_size=n_rows, **config)), shape)


def byte_pair_entries(specials: list[str], lines: Sequence[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return entries and merges as GPT-2's and RoBERTa's are made, special tokens first."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    engine.train_from_iterator(lines, trainer)
    model = json.loads(engine.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def roberta(folder: Path, shape: int = 0, kind: Any = transformers.RobertaForMaskedLM, **changes: Any) -> Any:
    """Write a RoBERTa; the second untied, the third for longer texts."""
    vocab, merges = byte_pair_entries(["<s>", "<pad>", "</s>", "<unk>"], odd_lines(2000, 5))
    mask = AddedToken("<mask>", lstrip=True, special=True)  # as the published ones have it
    vocab["<mask>"] = len(vocab)
    transformers.RobertaTokenizer(vocab=vocab, merges=merges, mask_token=mask).save_pretrained(folder)
    other: Any = ({}, {"tie_word_embeddings": False}, {"max_position_embeddings": 90, "layer_norm_eps": 1e-12})[shape]
    config = {"max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
    config |= {"bos_token_id": 0, "eos_token_id": 2, **SHAPES[shape], **NO_DROPOUT, **other, **changes}
    return save(folder, kind(transformers.RobertaConfig(vocab_size=len(vocab), **config)), shape)


SPACE_RUNS = [" " * n for n in range(24, 1, -1)]
NAMED = ["|||EMAIL_ADDRESS|||", "<|endoftext|>"]


def byte_pairs(folder: Path) -> dict[str, int]:
    """Write a tokenizer of ModernBERT, which is GPT-NeoX's: NFC and runs of spaces; return the ids by name."""
    engine = Engine(models.BPE())
    engine.normalizer, engine.decoder = normalizers.NFC(), decoders.ByteLevel()
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|padding|>"], initial_alphabet=alphabet, show_progress=False
    )
    engine.train_from_iterator([*odd_lines(2000, 5), "    if x:\n        y"] * 3, trainer)
    engine.add_tokens([AddedToken(run, normalized=True) for run in [*SPACE_RUNS, *NAMED]])
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    specials = [*names, AddedToken("[MASK]", lstrip=True, normalized=False)]
    engine.add_special_tokens(
        [AddedToken(name, normalized=False) if isinstance(name, str) else name for name in specials]
    )
    engine.add_tokens([AddedToken("[unused0]", normalized=True)])
    parts = [(name, engine.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    engine.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", parts)
    roles = {f"{name.strip('[]').lower()}_token": name for name in (*names, "[MASK]")}
    inputs = ["input_ids", "attention_mask"]
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, model_input_names=inputs, **roles).save_pretrained(
        folder
    )
    return dict(engine.get_vocab())


def modernbert(folder: Path, shape: int = 0, kind: Any = transformers.ModernBertForMaskedLM, **changes: Any) -> Any:
    """Write a ModernBERT with a window of 8; the third has biases and other bases of rotary positions, untied."""
    ids = byte_pairs(folder)
    other: Any = ({"num_hidden_layers": 4}, {"global_attn_every_n_layers": 2, "norm_eps": 1e-6})
    biases = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
    bases = {"global_rope_theta": 5e5, "local_rope_theta": 2e3}
    last = {"num_hidden_layers": 5, "tie_word_embeddings": False, "local_attention": 13, **biases, **bases}
    roles = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "cls": "[CLS]", "sep": "[SEP]"}
    config = {f"{role}_token_id": ids[name] for role, name in roles.items()} | {"local_attention": 8}
    config |= {"max_position_embeddings": 64, **SHAPES[shape], **(*other, last)[shape], **changes}
    return save(folder, kind(transformers.ModernBertConfig(vocab_size=max(ids.values()) + 4, **config)), shape)


ENCODERS: dict[str, Callable[..., Any]] = {
    "xlm-roberta": xlm_roberta,
    "bert": bert,
    "roberta": roberta,
    "roformer": roformer,
    "distilbert": distilbert,
    "electra": electra,
    "modernbert": modernbert,
}


def rewrite(folder: Path, name: str = "config.json", **changes: Any) -> None:
    tree = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**tree, **changes}))
