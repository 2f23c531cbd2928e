"""Imported vocabularies without the pieces that given text does not use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from attnkit.conversion.piece_vocabularies import ForeignVocabulary, make_piece_vocabulary
from attnkit.errors import UsageError
from attnkit.protocols import PAD_ID
from attnkit.text.lines import read_lines
from attnkit.text.piece_vocabulary import PieceVocabulary
from attnkit.text.pruning import PieceUse
from attnkit.text.sentencepiece_file import with_pieces

Sides = tuple[ForeignVocabulary, ForeignVocabulary]
_BATCH = 1000  #: lines encoded at once


def prune_vocabularies(sides: Sides, files: Sequence[Path]) -> Sides:
    """Return the vocabularies with what the files use, special entries and characters.

    All files are encoded by both sides. Raises ``UsageError`` for a vocabulary that is not SentencePiece's,
    ``DataError`` if a file cannot be read.
    """
    parts = [side.tokenizer.pieces for side in sides]
    vocabularies = [part for part in parts if part is not None]
    if len(vocabularies) < 2:
        what = "the vocabulary of this model is not one of SentencePiece"
        raise UsageError(what, where="--prune-vocab", help="leave the option out")
    src, tgt = vocabularies
    alike = src.raw == tgt.raw and src.vocabulary == tgt.vocabulary
    uses = [PieceUse(src)] if alike else [PieceUse(src), PieceUse(tgt)]
    for use in uses:
        use.add([src.before])  # what is before all sources is text too
    for file in files:
        lines = read_lines(file)
        while batch := list(islice(lines, _BATCH)):
            for use in uses:
                use.add(batch)
    pieces = [use.kept_pieces() for use in uses]
    ids = [use.kept_ids(kept) for use, kept in zip(uses, pieces, strict=True)]
    # One list of names may have one matrix.
    one = src.vocabulary == tgt.vocabulary
    ids = [set().union(*ids)] * len(uses) if one else _with_one_padding(ids, vocabularies)
    made = [
        _pruned(vocabulary, kept, sorted(chosen))
        for vocabulary, kept, chosen in zip(vocabularies, pieces * 2, ids * 2, strict=False)
    ]
    return (made[0], made[0]) if sides[0] is sides[1] else (made[0], made[1])


def _with_one_padding(ids: Sequence[set[int]], vocabularies: Sequence[PieceVocabulary]) -> list[set[int]]:
    """Return the ids with as many before padding on each side, by keeping more.

    The configuration of transformers has one id of padding, which two vocabularies share.
    """
    pads = [vocabulary.order[PAD_ID] for vocabulary in vocabularies]
    n_before = max(sum(id < pad for id in kept) for kept, pad in zip(ids, pads, strict=True))
    filled = []
    for kept, pad in zip(ids, pads, strict=True):
        unused = [id for id in range(pad) if id not in kept]
        filled.append(kept | set(unused[: n_before - sum(id < pad for id in kept)]))
    return filled


def _pruned(vocabulary: PieceVocabulary, pieces: set[int], ids: Sequence[int]) -> ForeignVocabulary:
    """Return a vocabulary of these pieces and ids, which are numbered anew."""
    numbers = {id: number for number, id in enumerate(ids)}
    names = {name: numbers[id] for name, id in vocabulary.vocabulary.items() if id in numbers}
    raw = with_pieces(vocabulary.raw, pieces)
    kept = vocabulary.roles, len(ids), list(vocabulary.symbols), vocabulary.codes, vocabulary.code, vocabulary.before
    made = make_piece_vocabulary(Path("SentencePiece model"), raw, names, *kept)
    return ForeignVocabulary(made.tokenizer, [ids[id] for id in made.order])
