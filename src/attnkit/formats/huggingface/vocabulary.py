"""The tokenizers of BERT, RoBERTa and GPT-2 as dictionaries, to what a vocabulary of ours is made of.

Ours starts with padding, begin, end, unknown and the symbols; theirs has them anywhere. So entries change places, and
``order`` says which of their rows each of ours is. Knows no files and no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from attnkit.errors import RunError
from attnkit.protocols import SPECIALS

Tree = Mapping[str, Any]
_BERT = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
DEFAULTS: dict[str, dict[str, str]] = {
    "bert": _BERT,
    "roformer": _BERT,
    "roberta": {"pad": "<pad>", "cls": "<s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"},
    "gpt2": {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"},
}
"""What the special entries are called where no file says it."""


@dataclass(frozen=True)
class ForeignVocabulary:
    """A vocabulary that was made elsewhere."""

    kind: Literal["bert", "gpt2"]
    lowercase: bool
    symbols: tuple[str, ...]
    names: list[str]
    """Of our entries, by id."""
    merges: list[list[str]]
    order: list[int | None]
    """For each of our ids theirs; None where they have no such entry."""


def of_word_list(text: str, settings: Tree) -> dict[str, Any]:
    """Return the tokenizer that a ``vocab.txt`` and the settings beside it describe, in the form of the other file."""
    words = text.split("\n")
    words = words[:-1] if words[-1] == "" else words
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
        "strip_accents": settings.get("strip_accents"),
        "lowercase": settings.get("do_lower_case", True),
    }
    model = {"type": "WordPiece", "vocab": {word.removesuffix("\r"): id for id, word in enumerate(words)}}
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": model}


def of_merges(vocab: Any, merges: str, settings: Tree) -> dict[str, Any]:
    """Return the tokenizer that ``vocab.json``, ``merges.txt`` and the settings beside them describe."""
    lines = [line for line in merges.split("\n") if line and not line.startswith("#version")]
    before = {"type": "ByteLevel", "add_prefix_space": settings.get("add_prefix_space", False)}
    return {"normalizer": None, "pre_tokenizer": before, "model": {"type": "BPE", "vocab": vocab, "merges": lines}}


def special_names(model: str, settings: Tree, declared: Tree) -> dict[str, str]:
    """Return what the special entries are called, by role.

    Args:
        model: Type of the model.
        settings: What ``tokenizer_config.json`` says.
        declared: What ``special_tokens_map.json`` says.
    """
    found = dict(DEFAULTS[model])
    for role in ("pad", "bos", "eos", "cls", "sep", "unk", "mask"):
        for tree in (declared, settings):
            name = tree.get(f"{role}_token")
            name = name.get("content") if isinstance(name, Mapping) else name
            if isinstance(name, str) and name:
                found[role] = name
    return found


def foreign(tree: Tree, model: str, names: Mapping[str, str], n_rows: int, mask: str) -> ForeignVocabulary:
    """Return the vocabulary of a tokenizer.

    Args:
        tree: What ``tokenizer.json`` says.
        model: Type of the model.
        names: What the special entries are called, by role.
        n_rows: Entries that the model knows; it may be more than have a name.
        mask: What we call the symbol for masked tokens.

    Raises:
        ValueError: it is of another kind, or makes no sense.
    """
    kind, lowercase = _kind(tree)
    entries = _entries(tree, n_rows)
    fixed, masked = _fixed({name: id for id, name in entries.items()}, model, names)
    added = {token["id"]: token["content"] for token in added_tokens(tree)}
    others = [id for id in sorted(added) if id not in (*fixed, *masked)]
    symbols = (*[mask][: len(masked)], *(added[id] for id in others))
    order = [*fixed, *masked, *others]
    rest = sorted(set(range(n_rows)).difference(order))
    own = [*SPECIALS, *(f"<symbol{i}>" for i in range(len(symbols)))]
    merges = _merges(tree["model"].get("merges", [])) if kind == "gpt2" else []
    listed = [*own, *(entries.get(id, f"<unused{id}>") for id in rest)]
    return ForeignVocabulary(kind, lowercase, symbols, listed, merges, [*order, *rest])


def separators(tree: Tree, model: str) -> int:
    """Return how many ends a tokenizer puts between two texts, 1 or 2; what such models have where it does not say."""
    usual = 2 if model == "roberta" else 1
    step = _mapping(tree.get("post_processor"))
    steps = step.get("processors") if step.get("type") == "Sequence" else [step]
    for found in map(_mapping, steps if isinstance(steps, list) else []):
        if found.get("type") in ("BertProcessing", "RobertaProcessing"):
            return 2 if found["type"] == "RobertaProcessing" else 1
        if found.get("type") == "TemplateProcessing" and isinstance(pair := found.get("pair"), list):
            names = [_mapping(_mapping(part).get("Sequence")).get("id") for part in pair]
            if "A" in names and "B" in names:
                return min(2, max(1, names.index("B") - names.index("A") - 1))
    return usual


def _fixed(ids: Mapping[str, int], model: str, names: Mapping[str, str]) -> tuple[list[int | None], list[int]]:
    """Return their numbers of padding, begin, end and unknown, and of the mask if the model has one."""
    roles = ("pad", "bos", "eos", "unk") if model == "gpt2" else ("pad", "cls", "sep", "unk", "mask")
    found = {role: ids.get(names.get(role, "")) for role in roles}
    for role in (*roles[1:3], *roles[4:]):
        if found[role] is None:
            raise ValueError(f"it has no {role}_token")
    pad, begin, end, unknown, *masked = found.values()
    # An entry of several roles is the begin and the end, which the model has learnt.
    single = [None if id in (begin, end) else id for id in (pad, unknown)]
    return [single[0], begin, end, single[1]], [id for id in masked if id is not None]


def _kind(tree: Tree) -> tuple[Literal["bert", "gpt2"], bool]:
    """Return which of the kinds that we know cuts as a tokenizer does, and whether it lower-cases."""
    model, before, after = _mapping(tree.get("model")), tree.get("normalizer"), _mapping(tree.get("pre_tokenizer"))
    if model.get("type") == "WordPiece" and after.get("type") == "BertPreTokenizer":
        return "bert", _bert_lowercase(model, _mapping(before))
    if model.get("type") == "BPE" and after.get("type") == "ByteLevel":
        _require("the normalizer", before, None)
        _require("add_prefix_space", after.get("add_prefix_space"), False)
        _require("use_regex", after.get("use_regex", True), True)
        for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
            _require(key, model.get(key) or None, None)
        for key in ("byte_fallback", "ignore_merges", "fuse_unk"):
            _require(key, bool(model.get(key)), False)
        return "gpt2", False
    cuts = f"{str(model.get('type'))[:40]} after {str(after.get('type'))[:40]}"
    raise ValueError(f"its tokenizer is neither BERT's nor GPT-2's: {cuts}")


def _bert_lowercase(model: Tree, before: Tree) -> bool:
    lowercase = before.get("lowercase")
    if not isinstance(lowercase, bool):
        raise ValueError("its normalizer does not say whether it lower-cases")
    _require("the normalizer", before.get("type"), "BertNormalizer")
    _require("clean_text", before.get("clean_text", True), True)
    _require("handle_chinese_chars", before.get("handle_chinese_chars", True), True)
    if before.get("strip_accents") is not None:
        _require("strip_accents", before.get("strip_accents"), lowercase)
    _require("continuing_subword_prefix", model.get("continuing_subword_prefix", "##"), "##")
    _require("max_input_chars_per_word", model.get("max_input_chars_per_word", 100), 100)
    return lowercase


def _require(key: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise ValueError(f"attnkit has no such tokenizer with {key} {str(found)[:40]}; it takes {wanted}")


def _entries(tree: Tree, n_rows: int) -> dict[int, str]:
    """Return the name of each id."""
    vocab = _mapping(tree["model"].get("vocab"))
    if not all(type(id) is int for id in vocab.values()):
        raise ValueError("its entries have no numbers")
    entries: dict[int, str] = {}
    for name, id in [*vocab.items(), *((token["content"], token["id"]) for token in added_tokens(tree))]:
        if not 0 <= id < n_rows:
            raise ValueError(f"its entry '{name[:40]}' has the number {id}, and the model knows {n_rows}")
        if entries.setdefault(id, name) != name:
            raise ValueError(f"the number {id} belongs to '{entries[id][:40]}' and to '{name[:40]}'")
    return entries


def added_tokens(tree: Tree) -> list[Mapping[str, Any]]:
    """Return the entries that are looked for in a text before all else. Raises ``ValueError`` where they are odd."""
    tokens = tree.get("added_tokens") or []
    if not isinstance(tokens, Sequence) or not all(
        isinstance(token, Mapping) and type(token.get("id")) is int and isinstance(token.get("content"), str)
        for token in tokens
    ):
        raise ValueError("its added tokens have no numbers or no names")
    return list(tokens)


def _merges(merges: Any) -> list[list[str]]:
    if not isinstance(merges, list):
        raise ValueError("its merges are not a list")
    return [_pair(merge) for merge in merges]


def _pair(merge: Any) -> list[str]:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise ValueError("a merge is not a pair of entries")
    return parts


def _mapping(value: Any) -> Tree:
    return value if isinstance(value, Mapping) else {}


def refused(error: ValueError, where: str) -> RunError:
    """Return the error for a tokenizer that cannot be taken over."""
    return RunError(f"the tokenizer cannot be imported: {error}", where=where, help="it takes those of BERT and GPT-2")
