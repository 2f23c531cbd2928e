"""The model card of a finished run of word vectors. Torch-free."""

from __future__ import annotations

from attnkit.tasks.word2vec.checkpoint import State
from attnkit.tasks.word2vec.config import Word2VecConfig


def card(name: str, config: Word2VecConfig, state: State) -> str:
    """Return Markdown: what the vectors are, how they were trained, how they are used."""
    sources = "\n".join(f"- {item}" for item in config.data.files)
    loss = "" if state.loss is None else f"\nMean loss at the end: {state.loss:.4f}.\n"
    return f"""# {name}

Word vectors of {config.dim} numbers ({described(config)}), trained with attnkit.

## Data

{sources}

{state.raw:,} words, those below {config.data.min_count} occurrences included.

## Training

{config.epochs} epochs, window {config.window}, {state.minutes:.1f} minutes, seed {config.seed}. The whole configuration
is in `config.yaml`.
{loss}
## Use

    attnkit word2vec similar {name} WORD
"""


def described(config: Word2VecConfig) -> str:
    """Return in words how vectors are trained."""
    if config.method == "glove":
        return "GloVe"
    loss = {"negative": f"{config.negative} negatives", "hierarchical": "hierarchical softmax", "full": "full softmax"}
    context = f", {config.context} of the context" if config.method == "cbow" else ""
    words = "" if config.subwords is None else f", n-grams of {config.subwords.min_n} to {config.subwords.max_n}"
    return f"{config.method}{context}, {loss[config.loss]}{words}"
