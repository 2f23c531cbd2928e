"""Tokenizer files of M2M100, NLLB-200 and mBART-50, from a vocabulary of pieces."""

import base64
import re
from typing import Any

from attnkit.text.piece_vocabulary import PieceVocabulary
from attnkit.text.sentencepiece import bpe_merges
from attnkit.text.sentencepiece_file import NORMAL

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


def added_symbols(pieces: PieceVocabulary) -> list[str]:
    """Return the symbols that a run has added to the pieces, by id."""
    known = (name for name in pieces.model.symbols if name in pieces.vocabulary)
    return sorted(known, key=pieces.vocabulary.__getitem__)


def pieces_cut_again(pieces: PieceVocabulary) -> list[str]:
    """Return the pieces that BPE cuts if they are a word of their own."""
    texts = [piece.text for piece in pieces.model.pieces if piece.type == NORMAL]
    return [text for text, ids in zip(texts, pieces.encode_normalized(texts), strict=True) if len(ids) > 1]


def tokenizer_tree(pieces: PieceVocabulary, code: str) -> Tree:
    """Return ``tokenizer.json`` of NLLB-200; ``code`` is put before texts, EOS behind.

    With added symbols, text is split at them, and a part of a word that is an entry is not merged: the symbols have no
    merges. NllbTokenizer of transformers ignores both, and would put a space behind each symbol.
    """
    model, names = pieces.model, piece_names(pieces)
    eos = str(pieces.roles["eos"])
    merges = [pair for pair in bpe_merges(model) if {*pair, "".join(pair)} <= names.keys()]
    normalizers: list[Tree] = [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    if model.charsmap.raw:
        charsmap = base64.b64encode(model.charsmap.raw).decode()
        normalizers.insert(0, {"type": "Precompiled", "precompiled_charsmap": charsmap})
    spaces: Tree = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    splitter, symbols = spaces, sorted(added_symbols(pieces), key=len, reverse=True)
    if symbols:
        pattern = {"Regex": "|".join(map(re.escape, symbols))}
        at_symbols = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        splitter = {"type": "Sequence", "pretokenizers": [spaces, at_symbols]}
    parts = [{"SpecialToken": {"id": code, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    end = {"SpecialToken": {"id": eos, "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(pieces),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": splitter,
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
            "ignore_merges": bool(symbols),
            "vocab": names,
            "merges": [list(pair) for pair in merges],
        },
    }
