"""Context and predictions of a language model per position, as terminal text."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from attnkit.plotting.terminal import truncate

_BLANK = "___"
_PIECE = 12  #: columns for the actual token


@dataclass(frozen=True)
class Candidate:
    """A predicted token."""

    piece: str
    probability: float


@dataclass(frozen=True)
class TokenComparison:
    """A token of a text with the predictions of a model at its position."""

    before: str  #: context before the token, including spaces
    after: str  #: context after the token
    piece: str  #: the token
    probability: float
    rank: int  #: rank of the token, 1 for the most probable
    guesses: list[Candidate]  #: most probable first


def render(places: Sequence[TokenComparison], width: int = 80) -> str:
    """Format one line per position: context, token and predictions, in percent."""
    room = max(10, (width - _PIECE - 12) // 2)
    head = f"  {'context':{room}}  {'token':{_PIECE + 6}}  predictions"
    lines = [head]
    for place in places:
        seen = set_cell_size(around(place.before, place.after, room), room)
        piece = set_cell_size(truncate(place.piece, _PIECE), _PIECE)
        line = f"  {seen}  {piece} {100 * place.probability:5.1f}  "
        for guess in place.guesses:
            cell = f"{guess.piece} {100 * guess.probability:.1f}  "
            if cell_len(line + cell.rstrip()) > width:
                break
            line += cell
        lines.append(line.rstrip())
    return "\n".join(lines)


def around(before: str, after: str, width: int) -> str:
    """Return the nearest left and right context around a blank.

    >>> around("The ", " sat on the mat.", 20)
    'The ___ sat on the …'
    >>> around("The cat sat on the ", ".", 12)
    '…on the ___.'
    """
    before, after = (" ".join(text.split("\n")) for text in (before, after))
    room = width - len(_BLANK)
    if cell_len(before) + cell_len(after) > room:
        half = room // 2
        left = min(cell_len(before), max(half, room - cell_len(after)))
        before = truncate(before[::-1], left)[::-1]
        after = truncate(after, room - cell_len(before))
    return before + _BLANK + after
