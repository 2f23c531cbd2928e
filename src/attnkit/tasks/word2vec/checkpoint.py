"""What a checkpoint of word vectors holds, written and checked: configuration, words, matrices, state. Torch-free.

A manifest proves that a file is what was saved, not that it makes sense: a run folder may come from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.manifest import Content
from attnkit.config import dump_yaml, validate
from attnkit.engine.checkpoint_metadata import MAX_STATE_BYTES, read_bounded, read_tree
from attnkit.errors import RunError, UsageError
from attnkit.tasks.word2vec import matrices as mats
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.text.word_vocabulary import FILE as WORDS
from attnkit.text.word_vocabulary import WordVocabulary

TASK = "word2vec"
STATE = "state.json"
MOST_WORDS_BYTES = 1 << 34
COPIES = (WORDS,)
"""Files of a checkpoint of which a copy lies at the root of the run, besides the configuration."""

Count = Annotated[int, Field(ge=0, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Pending(BaseModel, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Sums over the pieces since the last line of the log; a loss may overflow, and is then no number."""

    loss: Finite = 0.0
    terms: Count = 0
    words: Count = 0


class State(BaseModel, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Where a run stands."""

    step: Count = 0
    """Pieces that are done, of all epochs."""
    n_steps: Count = 0
    """Pieces that there are."""
    trained: Count = 0
    """Words that were trained on, less those that were left out for being frequent."""
    raw: Count = 0
    """Words of the text, before any was left out."""
    minutes: Finite = Field(default=0.0, ge=0)
    """That the training took."""
    loss: Finite | None = None
    """Mean over the last stretch that was logged."""
    finished: bool = False
    pending: Pending = Pending()
    fingerprint: str = Field(default="", max_length=200)
    """Of the encoded text."""
    metrics_size: Count = 0
    """Bytes of the log."""
    format: Literal[1] = 1


def contents(
    config: Word2VecConfig, words: bytes, matrices: mats.Matrices, found: mats.Shapes, state: State
) -> Mapping[str, Content]:
    """Return the files of a checkpoint."""
    return {
        "config.yaml": dump_yaml(config).encode(),
        WORDS: words,
        STATE: json.dumps(state.model_dump(mode="json"), sort_keys=True).encode(),
        mats.FILE: partial(mats.content, matrices, found),
    }


def read_config(checkpoint: Checkpoint) -> Word2VecConfig:
    """Return the configuration in a checkpoint. Raises ``RunError`` for a run of another kind, or where it is none."""
    tree = read_tree(checkpoint)
    if (kind := str(tree.get("task"))[:40]) != TASK:
        what = f"this run is of the kind '{kind}', not word vectors"
        raise RunError(what, where=str(checkpoint.path), help="attnkit word2vec train makes such a run")
    try:
        return validate(Word2VecConfig, tree)
    except UsageError as error:
        what = f"this run was made by another version of attnkit: {error.what}"
        raise RunError(what, where=str(checkpoint.path)) from error


def read_words(checkpoint: Checkpoint) -> WordVocabulary:
    """Return the words in a checkpoint. Raises ``RunError`` where they make no sense."""
    data = read_bounded(checkpoint, WORDS, MOST_WORDS_BYTES)
    words = WordVocabulary.from_bytes(data, where=str(checkpoint.path / WORDS))
    if not words.words:
        raise _invalid(checkpoint, WORDS, "it holds no words")
    return words


def read_state(checkpoint: Checkpoint) -> State:
    """Return where the run of a checkpoint stood. Raises ``RunError`` where it makes no sense."""
    raw = read_bounded(checkpoint, STATE, MAX_STATE_BYTES)
    try:
        state = State.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        raise _invalid(checkpoint, STATE, f"{place}: {first['msg']}" if place else first["msg"]) from error
    if state.step != checkpoint.step:
        raise _invalid(checkpoint, STATE, f"step is not {checkpoint.step}")
    if state.step > state.n_steps or (state.finished and state.step < state.n_steps):
        raise _invalid(checkpoint, STATE, f"step {state.step} of {state.n_steps} cannot be")
    return state


def check(checkpoint: Checkpoint) -> None:
    """Raise ``RunError`` where a checkpoint cannot be used though every byte is as it was saved."""
    config, words = read_config(checkpoint), read_words(checkpoint)
    read_state(checkpoint)
    mats.read(checkpoint, mats.shapes(config, len(words)))


def _invalid(checkpoint: Checkpoint, file: str, why: str) -> RunError:
    return RunError(f"invalid {file} in checkpoint {checkpoint.name}: {why}", where=str(checkpoint.path / file))
