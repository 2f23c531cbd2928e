"""Agreements between rooms: special ids, stepwise decoding, the tags of entities.

Letters: B batch, S source length, D model width, V vocabulary, K beam (parents per sentence).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:  # text and formats import this module and do without torch
    from torch import Tensor

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")  #: the first tokens of every vocabulary
PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)

OUTSIDE = "O"
_READ_AS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class Entity(NamedTuple):
    """Words ``begin`` up to, but not including, ``end``."""

    type: str
    begin: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """Return the letter of a tag and the type after its hyphen; of ``O`` and of bare letters the type is empty.

    >>> split_tag("B-creative-work")
    ('B', 'creative-work')
    """
    letter, _, type = tag.partition("-")
    return letter, type


def names_entity(tag: str) -> bool:
    """Return whether a tag is one of an entity: one of the letters, a hyphen and a type."""
    letter, type = split_tag(tag)
    return letter in _READ_AS and bool(type)


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, whatever its tags are: what is not well-formed is read as conlleval does.

    A word continues the entity before it if that one is of its type and has not ended (its last tag is B or I), and
    its own tag is I, E or L. So an I after O, or after another type, begins an entity; which is how IOB1 writes most.
    A tag with another letter names none, as ``O`` does.

    >>> entities(["O", "I-PER", "I-PER", "B-PER", "I-LOC"])
    [Entity(type='PER', begin=1, end=3), Entity(type='PER', begin=3, end=4), Entity(type='LOC', begin=4, end=5)]
    """
    found: list[Entity] = []
    before, type_before = OUTSIDE, ""
    for place, tag in enumerate(tags):
        letter, type = split_tag(tag)
        letter = _READ_AS.get(letter, OUTSIDE)
        if letter != OUTSIDE:
            if before in ("B", "I") and letter in ("I", "E") and type == type_before:
                found[-1] = found[-1]._replace(end=place + 1)
            else:
                found.append(Entity(type, place, place + 1))
        before, type_before = letter, type
    return found


class DecoderState(Protocol):
    """Memory of one model between decoding steps. Methods may change it in place: use what they return."""

    @property
    def attention(self) -> Tensor | None:
        """Return the last step's weights (B, K, S), mean over heads; None unless ``start`` has ``record``."""

    def reorder_beams(self, parents: Tensor) -> DecoderState:
        """Continue beam k of sentence b from its old beam parents[b, k] (B, K); the first call may widen 1 to K."""

    def select_rows(self, sentences: Tensor) -> DecoderState:
        """Keep only the given rows of the batch, in the given order; sentences is (n,) int64."""


class Decodable(Protocol):
    """A model that predicts one target token per step."""

    # States are Any here: a model takes back only its own kind, which a parameter's type cannot say.
    def start(self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False) -> Any:
        """Encode the sources (B, S) once; return a state for at most n_beams beams and max_length steps."""

    def step(self, prev: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the features (B, K, D) after the tokens prev (B, K), and the new state.

        K is 1 until ``reorder_beams`` has widened the state.
        """

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return fresh logits (..., V) of features (..., D), or of the given tokens alone (..., len(ids)).

        The search overwrites them.
        """
