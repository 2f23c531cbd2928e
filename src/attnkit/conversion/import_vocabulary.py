"""Import of Hugging Face tokenizers, and of those that attnkit exported.

Our vocabularies start with padding, BOS, EOS, unknown and the symbols; in Hugging Face vocabularies these may have any
ids. Entries are therefore reordered, and ``Vocabulary.order`` gives the original id of each of our ids.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from attnkit.conversion.import_encoder_pieces import read_encoder_pieces
from attnkit.conversion.import_llama_pieces import DEFAULTS as LLAMA_2
from attnkit.conversion.import_llama_pieces import has_llama_pieces, read_llama_pieces
from attnkit.conversion.vocabulary_files import (
    Tree,
    Vocabulary,
    added_tokens,
    mapping,
    read_file,
    read_settings,
    read_tree,
    separators,
)
from attnkit.errors import RunError
from attnkit.formats.huggingface import tokenizer as tokens
from attnkit.formats.huggingface.llama import LLAMAS
from attnkit.protocols import SPECIALS
from attnkit.tasks.language_modeling.config import MASK
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import TrainedKind, VocabularyConfig
from attnkit.text.origin import FILES, Origin
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_schema import CONTINUED, MAX_BYTES

_BERT = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
_ROBERTA = {"pad": "<pad>", "cls": "<s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
DEFAULTS: dict[str, dict[str, str]] = {
    "bert": _BERT,
    "roformer": _BERT,
    "distilbert": _BERT,
    "electra": _BERT,
    "modernbert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "gpt2": {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"},
    "llama": {"bos": "<|begin_of_text|>", "eos": "<|end_of_text|>"},
    "mistral": {"bos": "<s>", "eos": "</s>"},
}  #: default names of the special tokens


def read_vocabulary(folder: Path, model: str, n_rows: int) -> Vocabulary:
    """Read the tokenizer of a folder; raise ``RunError`` if missing or unsupported.

    ``model`` is the model type, and ``n_rows`` is the number of rows in its embedding table.
    """
    path = folder / "special_tokens_map.json"
    declared, settings = read_tree(path) if path.exists() else {}, read_settings(folder)
    cut_by_jieba = str(settings.get("tokenizer_class", "")).startswith("RoFormer")
    if model == "roformer" and (cut_by_jieba or not (folder / "tokenizer.json").exists()):
        what = "RoFormer's tokenizer needs jieba, which attnkit does not support"
        raise RunError(what, where=str(folder), help="use a RoFormer with a BERT-style tokenizer.json")
    has_pieces = model in LLAMAS and has_llama_pieces(folder)
    names = dict(LLAMA_2 if has_pieces else DEFAULTS[model])  # of the special tokens, by role
    for role, source in product(("pad", "bos", "eos", "cls", "sep", "unk", "mask"), (declared, settings)):
        name = source.get(f"{role}_token")
        name = name.get("content") if isinstance(name, Mapping) else name
        if isinstance(name, str) and name:
            names[role] = name
    if model == "xlm-roberta":
        return _with_origin(read_encoder_pieces(folder, names, n_rows), folder, model)
    if has_pieces:
        return _with_origin(read_llama_pieces(folder, names, settings, n_rows), folder, model)
    tree, where = _read_tokenizer(folder, settings)
    try:
        if (vocabulary := _own(tree, n_rows)) is None:
            vocabulary = _with_origin(_foreign(tree, model, names, n_rows), folder, model)
        return replace(vocabulary, separators=separators(tree, model))
    except ValueError as error:
        why = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
        what = f"the tokenizer cannot be imported: {why}"
        raise RunError(what, where=where, help="supported: tokenizers of BERT, GPT-2, Llama 2 and Llama 3") from error


def _with_origin(vocabulary: Vocabulary, folder: Path, model: str) -> Vocabulary:
    """Return a vocabulary that contains its original ids and files."""
    files = {name: read_file(folder / name, MAX_BYTES, bytes) for name in FILES if (folder / name).exists()}
    vocabulary.tokenizer.origin = Origin.of_files(model, vocabulary.order, files)
    return vocabulary


def _read_tokenizer(folder: Path, settings: Tree) -> tuple[Tree, str]:
    """Return a tokenizer in the format of ``tokenizer.json`` and the file read."""
    paths = [folder / name for name in ("tokenizer.json", "vocab.txt", "vocab.json")]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        help = "supported files: tokenizer.json, vocab.txt, or vocab.json with merges.txt; of Llama tokenizer.model"
        raise RunError(f"no tokenizer in {folder}", help=help)
    if path.name == "tokenizer.json":
        return read_tree(path, MAX_BYTES), str(path)
    model: Tree
    if path.name == "vocab.txt":
        normalizer = {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
            "strip_accents": settings.get("strip_accents"),
            "lowercase": settings.get("do_lower_case", True),
        }
        words = read_file(path, MAX_BYTES, bytes.decode).split("\n")
        words = words[:-1] if words[-1] == "" else words
        model = {"type": "WordPiece", "vocab": {word.removesuffix("\r"): id for id, word in enumerate(words)}}
        return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": model}, str(path)
    merges = read_file(folder / "merges.txt", MAX_BYTES, bytes.decode).split("\n")
    lines = [line for line in merges if line and not line.startswith("#version")]
    before = {"type": "ByteLevel", "add_prefix_space": settings.get("add_prefix_space", False)}
    model = {"type": "BPE", "vocab": read_tree(path, MAX_BYTES), "merges": lines}
    return {"normalizer": None, "pre_tokenizer": before, "model": model}, str(path)


def _foreign(tree: Tree, model: str, names: Mapping[str, str], n_rows: int) -> Vocabulary:
    """Convert a BERT or GPT-2 tokenizer; raise ``ValueError`` if it is unsupported."""
    kind, lowercase = _kind(tree)
    normalize: Literal["none", "nfc"] = "nfc" if kind == "gpt2" and tree.get("normalizer") is not None else "none"
    vocab, added = mapping(tree["model"].get("vocab")), added_tokens(tree)
    if not all(type(id) is int for id in vocab.values()):
        raise ValueError("vocabulary entries have no valid ids")
    entries: dict[int, str] = {}
    for name, id in [*vocab.items(), *((name, id) for id, name in added.items())]:
        if not 0 <= id < n_rows:
            raise ValueError(f"entry '{name[:40]}' has id {id}, but the model has {n_rows} embeddings")
        if entries.setdefault(id, name) != name:
            raise ValueError(f"duplicate id {id}: '{entries[id][:40]}' and '{name[:40]}'")
    ids = {name: id for id, name in entries.items()}
    roles = ("pad", "bos", "eos", "unk") if model in ("gpt2", *LLAMAS) else ("pad", "cls", "sep", "unk", "mask")
    found = {role: ids.get(names.get(role, "")) for role in roles}
    for role in (*roles[1:3], *roles[4:]):
        if found[role] is None:
            raise ValueError(f"it has no {role}_token")
    pad, begin, end, unknown, *masked = found.values()
    # An entry with several roles keeps those of begin and end, which the model was trained with.
    pad, unknown = (None if id in (begin, end) else id for id in (pad, unknown))
    order = [pad, begin, end, unknown, *masked]
    others = [id for id in sorted(added) if id not in order]
    symbols = (*[MASK][: len(masked)], *(added[id] for id in others))
    rest = sorted(set(range(n_rows)).difference(order, others))
    listed = [*_special_names(len(symbols)), *(entries.get(id, f"<unused{id}>") for id in rest)]
    merges = tree["model"].get("merges", []) if kind != "bert" else []
    if not isinstance(merges, list):
        raise ValueError("its merges are not a list")
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    if not all(isinstance(pair, list) and [type(part) for part in pair] == [str, str] for pair in merges):
        raise ValueError("a merge is not a pair of entries")
    size = max(8, len(listed))
    config = VocabularyConfig(
        kind=kind, size=size, normalize=normalize, lowercase=lowercase, symbols=symbols, multiple_of=1
    )
    numbers = {name: id for id, name in enumerate(listed)}
    if len(numbers) != len(listed):
        raise ValueError("duplicate vocabulary entry")
    pipeline = engine.pipeline(config, engine.model_of(config, numbers, merges))
    return Vocabulary(Tokenizer(config, pipeline), [*order, *others, *rest])


def _special_names(n_symbols: int) -> list[str]:
    """Return the names of the first entries of our vocabularies."""
    return [*SPECIALS, *(f"<symbol{i}>" for i in range(n_symbols))]


def _kind(tree: Tree) -> tuple[Literal["bert", "gpt2", "llama3"], bool]:
    """Return the equivalent kind of vocabulary, and whether it lower-cases."""
    model, before, after = mapping(tree.get("model")), tree.get("normalizer"), mapping(tree.get("pre_tokenizer"))
    kind: Literal["bert", "gpt2", "llama3"] = "gpt2"
    lowercase: Any = False
    if model.get("type") == "WordPiece" and after.get("type") == "BertPreTokenizer":
        kind, before = "bert", mapping(before)
        lowercase, accents = before.get("lowercase"), before.get("strip_accents")
        if not isinstance(lowercase, bool):
            raise ValueError("its normalizer lacks the boolean 'lowercase'")
        required: list[tuple[str, Any, Any]] = [
            ("the normalizer", before.get("type"), "BertNormalizer"),
            ("clean_text", before.get("clean_text", True), True),
            ("handle_chinese_chars", before.get("handle_chinese_chars", True), True),
            ("strip_accents", lowercase if accents is None else accents, lowercase),
            ("continuing_subword_prefix", model.get("continuing_subword_prefix", "##"), "##"),
            ("max_input_chars_per_word", model.get("max_input_chars_per_word", 100), 100),
        ]
    elif model.get("type") == "BPE" and (after.get("type") == "ByteLevel" or _is_llama_split(after)):
        split = after.get("type") == "Sequence"
        if split:
            kind, after = "llama3", mapping(after["pretokenizers"][1])
        absent, off = ("dropout", "continuing_subword_prefix", "end_of_word_suffix"), ("byte_fallback",)
        required = [
            ("the normalizer", None if not split and before in _NFC else before, None),
            ("add_prefix_space", after.get("add_prefix_space"), False),
            ("use_regex", after.get("use_regex", True), not split),
            *((key, model.get(key) or None, None) for key in absent),
            *((key, bool(model.get(key)), False) for key in (*off, "fuse_unk")),
            ("ignore_merges", bool(model.get("ignore_merges")), split),
        ]
    else:
        cuts = f"{str(model.get('type'))[:40]} after {str(after.get('type'))[:40]}"
        raise ValueError(f"its tokenizer is not one of BERT, GPT-2, Llama 2 or Llama 3: {cuts}")
    for key, value, wanted in required:
        if value != wanted:
            raise ValueError(f"unsupported tokenizer with {key} {str(value)[:40]}; expected {wanted}")
    return kind, lowercase


_NFC: tuple[Tree, ...] = ({"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]})
"""Normalizers of GPT-NeoX's vocabulary, which ModernBERT has."""


def _is_llama_split(step: Tree) -> bool:
    """Return whether a step is Llama 3's, but for the options of its second part."""
    steps = step.get("pretokenizers")
    if step.get("type") != "Sequence" or not isinstance(steps, list) or len(steps) != 2:
        return False
    return steps[0] == engine.LLAMA_SPLIT and mapping(steps[1]).get("type") == "ByteLevel"


def read_own_vocabulary(folder: Path, n_rows: int) -> Tokenizer | None:
    """Return the vocabulary of a folder that attnkit exported, None for others."""
    found = _own(read_tree(folder / "tokenizer.json", MAX_BYTES), n_rows)
    return None if found is None else found.tokenizer


def _own(tree: Tree, n_rows: int) -> Vocabulary | None:
    """Return the vocabulary of a tokenizer exported by attnkit, or None."""
    model, before = mapping(tree.get("model")), tree.get("pre_tokenizer")
    kind: TrainedKind
    match model.get("type"):
        case "BPE" if before is None or mapping(before).get("type") == "Sequence":
            kind = "char" if before is None else "bpe"
        case "WordPiece" if model.get("continuing_subword_prefix") == CONTINUED:
            kind = "wordpiece"
        case "Unigram":
            kind = "unigram"
        case "WordLevel":
            kind = "word"
        case _:
            return None
    added = added_tokens(tree)
    if sorted(added) != list(range(len(added))) or len(added) < len(SPECIALS):
        return None
    symbols = tuple(added[id] for id in range(len(SPECIALS), len(added)))
    names, vocab = _special_names(len(symbols)), model.get("vocab")  # our names for the first entries
    if isinstance(vocab, list) and all(isinstance(entry, list) for entry in vocab):
        listed = [[name, *entry[1:2]] for name, entry in zip(names, vocab, strict=False)]
        renamed = {**model, "vocab": [*listed, *vocab[len(names) :]]}
    elif isinstance(vocab, dict) and all(type(id) is int for id in vocab.values()):
        numbers = {names[id] if 0 <= id < len(names) else name: id for name, id in vocab.items()}
        renamed = {**model, "unk_token": SPECIALS[3], "vocab": numbers}
    else:
        return None
    for normalize, lowercase, fallback in product(("none", "nfc", "nfkc"), (False, True), (True, False)):
        try:
            flags = {"normalize": normalize, "lowercase": lowercase, "byte_fallback": fallback, "multiple_of": 1}
            config = VocabularyConfig.model_validate({"kind": kind, "size": n_rows, "symbols": symbols, **flags})
            full = engine.pipeline(config, renamed)
            if {key: tree.get(key) for key in ("normalizer", "pre_tokenizer")} == tokens.pipeline(config, full):
                found = Tokenizer(config, full)
                return Vocabulary(found, list(range(n_rows))) if found.vocab_size == n_rows else None
        except ValueError:
            continue
    return None
