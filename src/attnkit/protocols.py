"""Shared conventions: special ids, entity tags and the stepwise decoding protocol.

Letters: B batch, S source length, D model width, V vocabulary, K beam size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:  # ``text`` and ``formats`` import this module without torch
    from torch import Tensor

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")  #: the first tokens of every vocabulary
PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)

Unit = Literal["token", "character", "word"]  #: of attention maps; character: tokens that share one are joined
Run = tuple[str, int]  #: consecutive tokens shown as one: their text and their number


class TokenRuns(NamedTuple):
    """What the tokens of a text form; runs cover all tokens in order."""

    characters: Sequence[Run]  #: tokens, with those that share a character as one
    words: Sequence[Run]
    special: Sequence[bool]  #: whether each token is padding, BOS or EOS


OUTSIDE = "O"
_READ_AS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class Entity(NamedTuple):
    """An entity over the words from ``begin`` to ``end`` (exclusive)."""

    type: str
    begin: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """Return the letter and the type of a tag; without a hyphen, the type is empty.

    >>> split_tag("B-creative-work")
    ('B', 'creative-work')
    """
    letter, _, type = tag.partition("-")
    return letter, type


def names_entity(tag: str) -> bool:
    """Return whether a tag marks an entity: a known letter, a hyphen and a type."""
    letter, type = split_tag(tag)
    return letter in _READ_AS and bool(type)


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence; ill-formed tags are read as in conlleval.

    A word continues the entity of the previous word if its tag is I, E or L, the previous tag is B or I, and both have
    the same type. An I after ``O`` or after another type thus starts an entity, which is the usual notation in IOB1.
    Tags with an unknown letter are read as ``O``.

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
    """Decoding state of a model; methods may modify it in place, so use their result."""

    @property
    def attention(self) -> Tensor | None:
        """Return head-averaged weights (B, K, S) of the last step; None if not recorded."""

    def reorder_beams(self, parents: Tensor) -> DecoderState:
        """Replace beam k of sentence b by beam parents[b, k]; parents is (B, K)."""

    def select_rows(self, sentences: Tensor) -> DecoderState:
        """Keep the given batch rows, in the given order; sentences is (n,) int64."""


class Scorer(Protocol):
    """A translation model that predicts all target tokens of given pairs at once."""

    def hidden(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return features (B, T, D) for src (B, S) and tgt_in (B, T), padded on the right."""

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or (..., len(ids)) for ``ids``."""


class Decodable(Protocol):
    """A model that predicts one target token per step."""

    # States are Any: a model accepts only its own state class, which a parameter type cannot express.
    def start(self, src: Tensor, src_mask: Tensor | None, n_beams: int, max_length: int, record: bool = False) -> Any:
        """Encode sources (B, S); return a state for up to n_beams and max_length steps."""

    def step(self, prev: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the features (B, K, D) after the tokens prev (B, K), and the new state.

        K is 1 until ``reorder_beams`` has widened the state.
        """

    def head(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return logits (..., V) of features (..., D), or (..., len(ids)) for ``ids``.

        The search overwrites the tensor, and the next call may.
        """
