"""What a SentencePiece model and a network need to cut given text as before.

Unigram takes the best path through all pieces; without the others, the same path is still the best. BPE merges pairs
step by step; a merge that never happens in a text can be left out, but all pieces on the way to a used one are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from attnkit.text.config import MASK
from attnkit.text.piece_vocabulary import PieceVocabulary
from attnkit.text.sentencepiece_file import NORMAL, UNUSED, SentencePieceModel


class PieceUse:
    """Pieces of a SentencePiece model, and entries of its network, that texts use."""

    def __init__(self, vocabulary: PieceVocabulary) -> None:
        self.vocabulary = vocabulary
        self.pieces: set[int] = set()  #: ids in the SentencePiece model
        self.ids: set[int] = set()  #: ids of the network

    def add(self, lines: Iterable[str]) -> None:
        """Count in what these lines use; raise ``TypeError`` for surrogates."""
        vocabulary = self.vocabulary
        texts = [text for line in lines for text, id in vocabulary.parts(line) if id is None]
        for row in vocabulary.encode_pieces(texts):
            self.pieces.update(row)
        for row in vocabulary.encode(texts):
            self.ids.update(vocabulary.order[number] for number in row)

    def kept_pieces(self) -> set[int]:
        """Return the ids of pieces without which text would be cut differently.

        Single characters are kept, so that other text can be encoded as well as before, if by more pieces.
        """
        model = self.vocabulary.model
        pieces = model.pieces
        fixed = {id for id, piece in enumerate(pieces) if piece.type not in (NORMAL, UNUSED)}
        fixed.update(model.symbols.values())
        single = {id for id, piece in enumerate(pieces) if piece.type == NORMAL and len(piece.text) == 1}
        kept = fixed | single | self.pieces
        normal = [id for id, piece in enumerate(pieces) if piece.type == NORMAL]
        if model.algorithm == "bpe":
            return kept | _steps(model, kept)
        # Unknown characters cost ten more than the worst piece.
        return kept | ({min(normal, key=lambda id: pieces[id].score)} if normal else set())

    def kept_ids(self, pieces: set[int]) -> set[int]:
        """Return the ids of the network that belong to kept pieces, are used or special."""
        vocabulary = self.vocabulary
        special = {MASK, *vocabulary.symbols, *(name for name in vocabulary.roles.values() if name is not None)}
        special |= {name for name in vocabulary.vocabulary if name.startswith(">>") and name.endswith("<<")}
        names = special | {vocabulary.model.pieces[id].text for id in pieces}
        return self.ids | {id for name, id in vocabulary.vocabulary.items() if name in names}


def _steps(model: SentencePieceModel, used: set[int]) -> set[int]:
    """Return the pieces that BPE makes on the way to used ones."""
    numbers = {piece.text: id for id, piece in enumerate(model.pieces) if piece.type == NORMAL}
    found: set[int] = set()
    for id in used:
        parts = list(model.pieces[id].text)
        while len(parts) > 1:
            joined = [numbers.get(left + right) for left, right in pairwise(parts)]
            made = [(model.pieces[number].score, -at, number) for at, number in enumerate(joined) if number is not None]
            if not made:
                break
            _, place, number = max(made)  # the best score, and of equal ones the leftmost
            parts[-place : 2 - place] = [model.pieces[number].text]
            found.add(number)
    return found
