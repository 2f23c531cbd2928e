"""Write a vocabulary as AutoTokenizer files that produce the same ids.

``tokenizers`` has all the steps of ours; what differs is what happens before them. Ours encodes a line chunk by chunk,
each with a space before it and cut where a run of spaces begins. There one step puts a space before the line, and one
cuts it. Symbols such as [MASK] are looked for after the first of these, so that what follows one gets no space: the
step takes the space away again from a text that is a symbol and nothing else, as ``tokenizers`` sees symbols too.

What no such file can say: there a special entry's name in a text is that entry; here it is text like any other. And a
text that is nothing but a symbol has the symbol's entry alone; here the one of a space precedes it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnkit.errors import RunError
from attnkit.text.config import VocabularyConfig

Tree = dict[str, Any]
_BORDER = "\ufdd0"  #: no character of any language: the start of a chunk while NFKC makes spaces of other characters
_SPACELESS = ("char", "bert", "gpt2")  #: Kinds before whose chunks no space is put, or to whom it means nothing


@dataclass(frozen=True)
class Roles:
    """Names of special tokens in transformers, and the templates around texts."""

    names: tuple[str, str, str, str]  #: names of the padding, begin, end and unknown tokens
    tokens: Mapping[str, int]  #: special-token attribute of transformers, e.g. pad_token -> id
    single: tuple[str, ...]  #: ``$A``: the text
    pair: tuple[str, ...]  #: ``$B``: the second text, first of the second segment
    inputs: tuple[str, ...]  #: names of the model inputs


def bert_roles(separators: int = 1, segments: bool = True) -> Roles:
    """Return the roles of BERT, with so many ends between two texts, for a model with or without segments."""
    return Roles(
        names=("[PAD]", "[CLS]", "[SEP]", "[UNK]"),
        tokens={"pad_token": 0, "cls_token": 1, "sep_token": 2, "unk_token": 3},
        single=("[CLS]", "$A", "[SEP]"),
        pair=("[CLS]", "$A", *["[SEP]"] * separators, "$B", "[SEP]"),
        inputs=("input_ids", *(["token_type_ids"] if segments else []), "attention_mask"),
    )


BERT = bert_roles()
GPT = Roles(
    names=("<pad>", "<s>", "</s>", "<unk>"),
    tokens={"pad_token": 0, "bos_token": 1, "eos_token": 2, "unk_token": 3},
    single=("<s>", "$A"),
    pair=("<s>", "$A", "$B"),
    inputs=("input_ids", "attention_mask"),
)
MARIAN = Roles(GPT.names, GPT.tokens, ("$A", "</s>"), ("$A", "$B", "</s>"), GPT.inputs)


def files(words: VocabularyConfig, tree: Tree, roles: Roles, mask: str | None, longest: int | None) -> dict[str, Tree]:
    """Return the content of a tokenizer's files by their names.

    ``tree`` is the tokenizer in the JSON form of ``tokenizers``, ``mask`` the mask symbol, ``longest`` the maximum
    length of the model. Raises ``RunError`` if a symbol is also an entry by another name, which no such file can say.
    """
    names = [*roles.names, *words.symbols]
    kind, added = words.kind, list[Tree]()
    for id, name in enumerate(names):  # entries that are looked for in a text before all else
        symbol = id >= len(roles.names)
        # The space before a mask belongs to it, as before every symbol among whole words.
        spaced = symbol and (kind == "word" or (name == mask and kind not in ("char", "bert")))
        added.append(
            {
                "id": id,
                "content": name,
                "single_word": False,
                "lstrip": spaced,
                "rstrip": False,
                "normalized": symbol and kind not in _SPACELESS,
                "special": not symbol or name == mask,
            }
        )
    roots = {**roles.tokens, **({} if mask is None else {"mask_token": names.index(mask)})}
    special = {role: names[id] for role, id in roots.items()}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # that of the model's type would build another pipeline
        "added_tokens_decoder": {str(token["id"]): {k: v for k, v in token.items() if k != "id"} for token in added},
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1 << 30 if longest is None else longest,
        "model_input_names": list(roles.inputs),
        **special,
    }
    used = {name: roles.names.index(name) for name in (*roles.single, *roles.pair) if name in roles.names}
    segments = "token_type_ids" in roles.inputs
    around = {
        "type": "TemplateProcessing",
        "single": _template(roles.single, segments),
        "pair": _template(roles.pair, segments),
        "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in used.items()},
    }
    return {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            **pipeline(words, tree),
            "post_processor": around,
            "decoder": _decoder(kind),
            "model": _model(tree["model"], names),
        },
        "tokenizer_config.json": config,
        "special_tokens_map.json": special,
    }


def pipeline(vocabulary: VocabularyConfig, tree: Tree) -> Tree:
    """Return the steps before the model: normalizer and pre-tokenizer. Arguments as of ``files``."""
    before, after = tree["normalizer"], tree["pre_tokenizer"]
    if vocabulary.kind in _SPACELESS:
        return {"normalizer": before, "pre_tokenizer": after}
    nfkc, whole_words = vocabulary.normalize == "nfkc", vocabulary.kind == "word"
    steps: list[Tree] = [{"type": "Prepend", "prepend": " "}]
    if vocabulary.symbols:
        alone = "|".join(map(re.escape, vocabulary.symbols))
        steps.append({"type": "Replace", "pattern": {"Regex": f"^ (?=(?:{alone})$)"}, "content": ""})
    if nfkc and not whole_words:
        steps.append({"type": "Replace", "pattern": {"Regex": "(?<! ) "}, "content": f"{_BORDER} "})
    steps += before["normalizers"] if before is not None else []
    # A line is cut before each run of spaces.
    pattern, behavior = ({"String": _BORDER}, "Removed") if nfkc else ({"Regex": " +[^ ]*"}, "Isolated")
    cut = {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}
    cuts = [after] if whole_words else [cut, *after["pretokenizers"]]
    normalizer = {"type": "Sequence", "normalizers": steps}
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts}}


def _model(model: Tree, names: Sequence[str]) -> Tree:
    """Return the model with the first entries' names as they are there."""
    listed = model["type"] == "Unigram"
    old = [name for name, _ in model["vocab"]] if listed else sorted(model["vocab"], key=model["vocab"].__getitem__)
    new = [*names, *old[len(names) :]]
    if len(set(new)) != len(new):
        twice = next(name for name in names if new.count(name) > 1)
        help = "train with other symbols, or another kind of vocabulary"
        raise RunError(f"duplicate vocabulary entry '{twice}'", where="vocabulary.symbols", help=help)
    if listed:
        return {**model, "vocab": [[name, score] for name, (_, score) in zip(new, model["vocab"], strict=True)]}
    return {**model, "unk_token": names[3], "vocab": {name: id for id, name in enumerate(new)}}


def _template(parts: Sequence[str], segments: bool) -> list[Tree]:
    second = parts.index("$B") if "$B" in parts and segments else len(parts)
    named = [("Sequence", part[1:]) if part in ("$A", "$B") else ("SpecialToken", part) for part in parts]
    return [{name: {"id": id, "type_id": int(place >= second)}} for place, (name, id) in enumerate(named)]


def _decoder(kind: str) -> Tree:
    """Return the decoder section of tokenizer.json, which strips the leading space."""
    joined: Tree = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    bare: Tree = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    fuse: Tree = {"type": "Fuse"}
    if kind == "gpt2":
        return joined
    if kind == "bert":
        return {"type": "WordPiece", "prefix": "##", "cleanup": True}
    steps: dict[str, list[Tree]] = {
        "char": [{"type": "ByteFallback"}, fuse],
        "word": [fuse, bare],
        "wordpiece": [{"type": "Replace", "pattern": {"String": "‿"}, "content": ""}, joined, bare],
    }
    return {"type": "Sequence", "decoders": steps.get(kind, [joined, bare])}
