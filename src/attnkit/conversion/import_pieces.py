"""Import of the vocabularies of translation models: SentencePiece files and ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from attnkit.conversion.import_vocabulary import read_file, read_own_vocabulary, read_tree
from attnkit.errors import RunError
from attnkit.formats.huggingface.translation_config import ForeignTranslator
from attnkit.text.config import VocabularyConfig
from attnkit.text.piece_vocabulary import make_tree
from attnkit.text.sentencepiece_file import MAX_FILE_BYTES
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_schema import MAX_BYTES

T = TypeVar("T")
_MOST_CODES = 4096


@dataclass(frozen=True)
class ForeignVocabulary:
    """The vocabulary of one side, and the id in transformers of each of our ids."""

    tokenizer: Tokenizer
    order: list[int]


def read_vocabularies(folder: Path, found: ForeignTranslator) -> tuple[ForeignVocabulary, ForeignVocabulary]:
    """Read the vocabularies of source and target; one object if both share it.

    Raises ``RunError`` if they are missing, damaged, or do not fit ``config.json``.
    """
    if found.config.decoder_start == "bos":  # only attnkit's own exports start from a token of its own
        return _read_own(folder, found)
    settings_path = folder / "tokenizer_config.json"
    settings = read_tree(settings_path) if settings_path.exists() else {}
    separate = settings.get("separate_vocabs") is True
    files = ("vocab.json", "target_vocab.json" if separate else "vocab.json")
    raw = [read_file(folder / name, MAX_FILE_BYTES, bytes) for name in ("source.spm", "target.spm")]
    if raw[0] == raw[1] and not separate:
        both = _marian(folder, "source.spm", raw[0], files[0], settings, found, found.vocab_sizes[0])
        return both, both
    src = _marian(folder, "source.spm", raw[0], files[0], settings, found, found.vocab_sizes[0])
    return src, _marian(folder, "target.spm", raw[1], files[1], settings, found, found.vocab_sizes[1])


def _marian(
    folder: Path, spm: str, raw: bytes, file: str, settings: Mapping[str, Any], found: ForeignTranslator, n_rows: int
) -> ForeignVocabulary:
    """Return the vocabulary of one side of Marian."""
    vocabulary = read_tree(folder / file, MAX_BYTES)
    names = {id: name for name, id in vocabulary.items() if type(id) is int}
    unknown = settings.get("unk_token", "<unk>")
    unknown = unknown.get("content") if isinstance(unknown, Mapping) else unknown
    roles = {"pad": names.get(found.pad_id), "bos": None, "eos": names.get(found.eos_id), "unk": unknown}
    for role, id in (("pad", found.pad_id), ("eos", found.eos_id)):
        if roles[role] is None:
            what = f"{role}_token_id {id} of config.json is not in {file}"
            raise RunError(what, where=str(folder / file), help="use the files of one model")
    codes = sorted((id, name) for id, name in names.items() if name.startswith(">>") and name.endswith("<<"))
    symbols = [name for _, name in codes if len(name) <= 100 and name.split() == [name]][:_MOST_CODES]
    where = str(folder / spm)
    try:
        config = VocabularyConfig(
            kind="sentencepiece", size=max(8, n_rows + 1), symbols=tuple(symbols), multiple_of=1, min_frequency=1
        )
        tokenizer = Tokenizer(config, make_tree(raw, vocabulary, roles, n_rows, "marked"))
    except ValueError as error:
        raise RunError(f"the tokenizer cannot be imported: {error}", where=where) from error
    assert tokenizer.pieces is not None
    return ForeignVocabulary(tokenizer, tokenizer.pieces.order)


def _read_own(folder: Path, found: ForeignTranslator) -> tuple[ForeignVocabulary, ForeignVocabulary]:
    """Return the vocabularies of a folder that attnkit exported."""
    sides: list[ForeignVocabulary] = []
    for place, n_rows in zip((folder, folder / "target"), found.vocab_sizes, strict=True):
        if place != folder and not place.exists():
            return sides[0], sides[0]
        tokenizer = read_own_vocabulary(place, n_rows)
        if tokenizer is None:
            what = "the decoder starts from neither padding nor EOS, and the tokenizer is not attnkit's"
            raise RunError(what, where=str(place), help="supported: Marian as of OPUS-MT, and attnkit's own exports")
        sides.append(ForeignVocabulary(tokenizer, list(range(tokenizer.vocab_size))))
    return sides[0], sides[1]
