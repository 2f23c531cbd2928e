"""Tokenizer files of M2M100, NLLB-200 and mBART-50, from a vocabulary of pieces."""

import base64
from typing import Any

from attnkit.text.piece_vocabulary import PieceVocabulary
from attnkit.text.sentencepiece import bpe_merges

Tree = dict[str, Any]
MASK = "<mask>"


def piece_names(pieces: PieceVocabulary) -> dict[str, int]:
    """Return name -> id of the pieces and special tokens, without languages and mask."""
    others = {*pieces.symbols, MASK}
    names = sorted(pieces.vocabulary.items(), key=lambda item: item[1])
    return {name: id for name, id in names if name not in others}


def added_tokens(pieces: PieceVocabulary) -> list[Tree]:
    """Return the special tokens and languages as ``tokenizers`` writes them, by id."""
    names = [*(name for name in pieces.roles.values() if name is not None), *pieces.symbols, MASK]
    numbered = sorted((pieces.vocabulary[name], name) for name in names if name in pieces.vocabulary)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": id, "content": name, **flags, "lstrip": name == MASK} for id, name in numbered]


def tokenizer_tree(pieces: PieceVocabulary, code: str) -> Tree:
    """Return ``tokenizer.json`` of NLLB-200; ``code`` is put before texts, EOS behind."""
    model, names = pieces.model, piece_names(pieces)
    eos = str(pieces.roles["eos"])
    merges = [pair for pair in bpe_merges(model) if {*pair, "".join(pair)} <= names.keys()]
    normalizers: list[Tree] = [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    if model.charsmap.raw:
        charsmap = base64.b64encode(model.charsmap.raw).decode()
        normalizers.insert(0, {"type": "Precompiled", "precompiled_charsmap": charsmap})
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    parts = [{"SpecialToken": {"id": code, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    end = {"SpecialToken": {"id": eos, "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(pieces),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": spaces,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [*parts, end],
            "pair": [*parts, {"Sequence": {"id": "B", "type_id": 0}}, end],
            "special_tokens": {
                name: {"id": name, "ids": [pieces.vocabulary[name]], "tokens": [name]} for name in (code, eos)
            },
        },
        "decoder": spaces,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": pieces.roles["unk"],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": names,
            "merges": [list(pair) for pair in merges],
        },
    }
