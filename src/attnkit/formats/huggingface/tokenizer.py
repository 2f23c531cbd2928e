"""Export of a vocabulary as AutoTokenizer files that produce the same ids.

``tokenizers`` has every step of attnkit; only the preparation of a line differs. attnkit splits a line into chunks
before each run of spaces, and every chunk starts with a space. In ``tokenizers``, one step prepends a space to the line
and another splits it. Symbols such as [MASK] are matched after the first step, so the text after a symbol gets no
space. ``tokenizers`` also prepends a space to the symbols themselves, so a further step removes it.

These files cannot represent two cases. In transformers, the name of a special token in a text is that token; in attnkit
it is ordinary text. In transformers, a text that is only a symbol is one token; attnkit puts a space token before it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnkit.errors import RunError
from attnkit.text.config import VocabularyConfig

Tree = dict[str, Any]
_BORDER = "\ufdd0"  #: a noncharacter that marks the start of chunks, since NFKC turns other characters into spaces
_SPACELESS = ("char", "bert", "gpt2", "llama3")  #: kinds that add no space before a chunk, or ignore it


@dataclass(frozen=True)
class Roles:
    """Special tokens of a model in transformers, and templates that add them to texts."""

    names: tuple[str, str, str, str]  #: names of the padding, begin, end and unknown tokens
    tokens: Mapping[str, int]  #: special-token attribute of transformers, e.g. pad_token -> id
    single: tuple[str, ...]  #: template of a single text, ``$A``
    pair: tuple[str, ...]  #: template of two texts; ``$B`` starts the second segment
    inputs: tuple[str, ...]  #: names of the model inputs


def bert_roles(separators: int = 1, segments: bool = True) -> Roles:
    """Return the roles of BERT, with ``separators`` [SEP] tokens between two texts."""
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
    """Return the content of each tokenizer file by file name.

    ``tree`` is the tokenizer in the JSON form of ``tokenizers``, ``mask`` the mask symbol, ``longest`` the maximum
    length of the model. Raises ``RunError`` if two entries would have the same name, which these files do not allow.
    """
    names = [*roles.names, *words.symbols]
    kind, added = words.kind, list[Tree]()
    for id, name in enumerate(names):  # added tokens are matched in a text before everything else
        symbol = id >= len(roles.names)
        # A mask includes the space before it; in word vocabularies, every symbol does.
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
        "tokenizer_class": "PreTrainedTokenizerFast",  # the class of the model type would build a different pipeline
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
    """Return the normalizer and the pre-tokenizer; arguments as in ``files``."""
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
    # Split a line before each run of spaces.
    pattern, behavior = ({"String": _BORDER}, "Removed") if nfkc else ({"Regex": " +[^ ]*"}, "Isolated")
    cut = {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}
    cuts = [after] if whole_words else [cut, *after["pretokenizers"]]
    normalizer = {"type": "Sequence", "normalizers": steps}
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts}}


def _model(model: Tree, names: Sequence[str]) -> Tree:
    """Return the model section with the first entries renamed to ``names``."""
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
    if kind in ("gpt2", "llama3"):
        return joined
    if kind == "bert":
        return {"type": "WordPiece", "prefix": "##", "cleanup": True}
    steps: dict[str, list[Tree]] = {
        "char": [{"type": "ByteFallback"}, fuse],
        "word": [fuse, bare],
        "wordpiece": [{"type": "Replace", "pattern": {"String": "‿"}, "content": ""}, joined, bare],
    }
    return {"type": "Sequence", "decoders": steps.get(kind, [joined, bare])}
