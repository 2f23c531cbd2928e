"""The tokenizer of a Hugging Face folder as a vocabulary of ours: BERT's, RoBERTa's, GPT-2's, or one we exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from attnkit.errors import RunError, system_failure
from attnkit.formats.huggingface import tokenizer as tokens
from attnkit.formats.huggingface import vocabulary as vocabularies
from attnkit.io.safe_read import parse_json, read_regular_file
from attnkit.protocols import SPECIALS
from attnkit.tasks.language_modeling.config import MASK
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import TrainedKind, VocabularyConfig
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_schema import CONTINUED, MAX_BYTES

MAX_JSON_BYTES = 1 << 24
"""Bytes of a file of settings."""


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary of ours, and where its entries' numbers come from."""

    tokenizer: Tokenizer
    order: list[int | None]
    """For each of our ids theirs; None where they have no such entry."""
    separators: int = 1
    """Ends that stand between two texts."""


def read_vocabulary(folder: Path, model: str, n_rows: int) -> Vocabulary:
    """Return the vocabulary of a folder whose model is of a type and knows so many entries.

    Raises:
        RunError: there is none, or one of another kind.
    """
    settings, declared = (_optional(folder / name) for name in ("tokenizer_config.json", "special_tokens_map.json"))
    cut_by_jieba = str(settings.get("tokenizer_class", "")).startswith("RoFormer")
    if model == "roformer" and (cut_by_jieba or not (folder / "tokenizer.json").exists()):
        what = "RoFormer's own tokenizer finds words by jieba, which attnkit does not have"
        raise RunError(what, where=str(folder), help="it takes a RoFormer with a tokenizer.json of BERT's kind")
    tree, where = _tree(folder, settings)
    names = vocabularies.special_names(model, settings, declared)
    try:
        separators = vocabularies.separators(tree, model)
        own = _own(tree, n_rows)
        if own is not None:
            return replace(own, separators=separators)
        found = vocabularies.foreign(tree, model, names, n_rows, MASK)
        config = VocabularyConfig(
            kind=found.kind,
            size=max(8, len(found.names)),
            lowercase=found.lowercase,
            symbols=found.symbols,
            multiple_of=1,
        )
        ids = {name: id for id, name in enumerate(found.names)}
        if len(ids) != len(found.names):
            raise ValueError("two entries have one name")
        pipeline = engine.pipeline(config, engine.model_of(config, ids, found.merges))
        return Vocabulary(Tokenizer(config, pipeline), found.order, separators)
    except ValidationError as error:
        raise vocabularies.refused(ValueError(error.errors(include_url=False)[0]["msg"]), where) from error
    except ValueError as error:
        raise vocabularies.refused(error, where) from error


def _tree(folder: Path, settings: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the tokenizer in the form of ``tokenizer.json``, and the file that it comes from."""
    for name in ("tokenizer.json", "vocab.txt", "vocab.json"):
        path = folder / name
        if not path.exists():
            continue
        if name == "tokenizer.json":
            return read_tree(path, MAX_BYTES), str(path)
        if name == "vocab.txt":
            return vocabularies.of_word_list(_text(path), settings), str(path)
        merges = _text(folder / "merges.txt")
        return vocabularies.of_merges(read_tree(path, MAX_BYTES), merges, settings), str(path)
    what = f"no tokenizer in {folder}"
    raise RunError(
        what, help="it takes tokenizer.json, vocab.txt, or vocab.json and merges.txt; and no tokenizer.model"
    )


def _own(tree: Mapping[str, Any], n_rows: int) -> Vocabulary | None:
    """Return the vocabulary of a tokenizer that attnkit exported, None for any other."""
    model = tree.get("model")
    kind = _own_kind(tree, model) if isinstance(model, dict) else None
    if kind is None or not isinstance(model, dict):
        return None
    added = {token["id"]: token["content"] for token in vocabularies.added_tokens(tree)}
    if sorted(added) != list(range(len(added))) or len(added) < len(SPECIALS):
        return None
    symbols = tuple(added[id] for id in range(len(SPECIALS), len(added)))
    names = [*SPECIALS, *(f"<symbol{i}>" for i in range(len(symbols)))]
    for normalize, lowercase, fallback in product(_NORMALIZERS, (False, True), (True, False)):
        try:
            config = VocabularyConfig(
                kind=kind,
                size=n_rows,
                normalize=normalize,
                lowercase=lowercase,
                byte_fallback=fallback,
                symbols=symbols,
                multiple_of=1,
            )
            full = engine.pipeline(config, _renamed(model, names))
            words = tokens.Words(kind, normalize == "nfkc", symbols, full)
            if {key: tree.get(key) for key in ("normalizer", "pre_tokenizer")} == tokens.pipeline(words):
                found = Tokenizer(config, full)
                return Vocabulary(found, list(range(n_rows))) if found.vocab_size == n_rows else None
        except ValueError:
            continue
    return None


_NORMALIZERS: tuple[Literal["none", "nfc", "nfkc"], ...] = ("none", "nfc", "nfkc")


def _own_kind(tree: Mapping[str, Any], model: Mapping[str, Any]) -> TrainedKind | None:
    type = model.get("type")
    if type == "BPE":
        before = tree.get("pre_tokenizer")
        sequence = isinstance(before, dict) and before.get("type") == "Sequence"
        return "char" if before is None else "bpe" if sequence else None
    if type == "WordPiece":
        return "wordpiece" if model.get("continuing_subword_prefix") == CONTINUED else None
    return "unigram" if type == "Unigram" else "word" if type == "WordLevel" else None


def _renamed(model: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """Return a model whose first entries have our names."""
    vocab = model.get("vocab")
    if isinstance(vocab, list):
        scores = [entry[1] for entry in vocab[: len(names)]]
        return {**model, "vocab": [*(list(pair) for pair in zip(names, scores, strict=True)), *vocab[len(names) :]]}
    if not isinstance(vocab, dict) or not all(type(id) is int for id in vocab.values()):
        raise ValueError("its entries have no numbers")
    listed = {names[id] if 0 <= id < len(names) else name: id for name, id in vocab.items()}
    return {**model, "unk_token": SPECIALS[3], "vocab": listed}


def read_tree(path: Path, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return what a JSON file says.

    Raises:
        RunError: it is missing, no JSON of keys and values, or too large.
        SystemFailure: it cannot be read for another reason.
    """
    try:
        tree = parse_json(_raw(path, most))
    except ValueError as error:
        raise RunError(f"{path.name} cannot be used: {error}", where=str(path)) from error
    if not isinstance(tree, dict):
        raise RunError(f"{path.name} holds no keys and values", where=str(path))
    return tree


def _optional(path: Path) -> dict[str, Any]:
    return read_tree(path) if path.exists() else {}


def _text(path: Path) -> str:
    try:
        return _raw(path, MAX_BYTES).decode("utf-8")
    except ValueError as error:
        raise RunError(f"{path.name} cannot be used: {error}", where=str(path)) from error


def _raw(path: Path, most: int) -> bytes:
    try:
        return read_regular_file(path, most, follow=True)
    except FileNotFoundError as error:
        raise RunError(f"no {path.name} in {path.parent}", help="name a folder that save_pretrained wrote") from error
    except OSError as error:
        raise system_failure("read", path, error) from error
