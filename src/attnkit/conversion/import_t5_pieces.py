"""Import of the vocabulary of T5 and mT5: SentencePiece's pieces, then sentinels.

The ids of pieces are those of ``spiece.model``. Sentinels such as ``<extra_id_0>``, of gaps in a text, follow them,
the last one first, unless the tokenizer's files give them other ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnkit.conversion.import_encoder_pieces import as_sentencepiece, listed
from attnkit.conversion.piece_vocabularies import ForeignVocabulary, make_piece_vocabulary
from attnkit.conversion.vocabulary_files import added_tokens, read_file, read_settings, read_tree
from attnkit.errors import RunError, UsageError
from attnkit.formats.huggingface.translation_config import ForeignTranslator
from attnkit.text.piece_vocabulary import MAX_BEFORE
from attnkit.text.sentencepiece_file import MAX_FILE_BYTES, read_sentencepiece
from attnkit.text.vocabulary_schema import MAX_BYTES

PIECES = "spiece.model"
SENTINEL = re.compile(r"<extra_id_\d{1,4}>")
_MOST_SENTINELS = 4096
_MOST_BEFORE = 256  # tokens: about as many are left for a source, which with them has at most 511


def read_t5_vocabularies(
    folder: Path, found: ForeignTranslator, source_prefix: str
) -> tuple[ForeignVocabulary, ForeignVocabulary]:
    """Read the vocabulary of a T5; one object if no text is put before sources.

    Raises ``UsageError`` for a prefix that is not text of one line, ``RunError`` if files are missing, damaged, or do
    not fit ``config.json``.
    """
    check_source_prefix(source_prefix)
    path, where = folder / PIECES, folder / "tokenizer.json"
    tree = read_tree(where, MAX_BYTES) if where.exists() else None
    try:
        if path.exists():
            raw = read_file(path, MAX_FILE_BYTES, bytes)
            vocabulary = {piece.text: id for id, piece in enumerate(read_sentencepiece(raw).pieces)}
        elif tree is not None:
            vocabulary, scores = listed(tree)
            raw = as_sentencepiece(tree, vocabulary, scores)
        else:
            raise RunError(f"no tokenizer in {folder}", help=f"supported files: {PIECES} or tokenizer.json")
        added = _sentinels(folder, tree, found, len(vocabulary))
    except ValueError as error:
        raise RunError(f"the tokenizer cannot be imported: {error}", where=str(folder)) from error
    n_rows, names = found.vocab_sizes[0], {id: name for name, id in vocabulary.items()}
    for name, id in added.items():
        if vocabulary.setdefault(name, id) != id or names.setdefault(id, name) != name:
            what = f"the tokenizer cannot be imported: the sentinel '{name}' has an id of another entry"
            raise RunError(what, where=str(folder), help="use the files of one model")
    for role, id in (("pad", found.pad_id), ("eos", found.eos_id)):
        if id not in names:
            what = f"{role}_token_id {id} of config.json is not in the tokenizer"
            raise RunError(what, where=str(folder), help="use the files of one model")
    roles = {"pad": None, "bos": names.get(found.pad_id), "eos": names.get(found.eos_id), "unk": "<unk>"}
    symbols = sorted(added, key=added.__getitem__)
    given = path if path.exists() else where, raw, vocabulary, roles, n_rows, symbols
    both = make_piece_vocabulary(*given, "anywhere")
    if not source_prefix:
        return both, both
    first = make_piece_vocabulary(*given, "anywhere", before=source_prefix)
    if (n := len(first.tokenizer.code_ids)) > _MOST_BEFORE:
        what = f"the text before sources has {n:,} tokens of this model, more than {_MOST_BEFORE}"
        raise UsageError(what, where="--source-prefix", help="shorten it: it counts in the length of each source")
    return first, both


def check_source_prefix(text: str) -> None:
    """Raise ``UsageError`` if a text cannot be put before sources."""
    what = None
    if text and not text.strip():
        what = "the text before sources is blank"
    elif len(text) > MAX_BEFORE:
        what = f"the text before sources has {len(text):,} characters, more than {MAX_BEFORE:,}"
    elif "\n" in text or any("\ud800" <= character <= "\udfff" for character in text):
        what = "the text before sources is not a line of text"
    if what is not None:
        raise UsageError(what, where="--source-prefix", help='e.g. --source-prefix "translate English to German:"')


def _sentinels(folder: Path, tree: dict[str, Any] | None, found: ForeignTranslator, n_pieces: int) -> dict[str, int]:
    """Return ids of sentinels beside the pieces; raise ``ValueError`` if malformed."""
    settings = read_settings(folder)
    tokens: Mapping[int, str] = {}
    if tree is not None:
        tokens = added_tokens(tree)
    elif isinstance(decoder := settings.get("added_tokens_decoder"), dict):
        numbered = {int(id): token for id, token in decoder.items() if id.isdecimal() and len(id) < 8}
        contents = {id: token.get("content") for id, token in numbered.items() if isinstance(token, Mapping)}
        tokens = {id: name for id, name in contents.items() if isinstance(name, str)}
    if tokens:
        return {name: id for id, name in sorted(tokens.items()) if SENTINEL.fullmatch(name)}
    n = settings.get("extra_ids", 100 if found.kind == "t5" else 0)
    if type(n) is not int or not 0 <= n <= _MOST_SENTINELS:
        raise ValueError(f"extra_ids is {str(n)[:40]}, expected a number up to {_MOST_SENTINELS}")
    n = min(n, found.vocab_sizes[0] - n_pieces)
    return {f"<extra_id_{i}>": n_pieces + n - 1 - i for i in range(n)}
