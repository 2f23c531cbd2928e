"""RUN/data of a run of word vectors: the encoded text, made once and known again. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.prepared_dir import is_prepared, open_prepared_dir, write_index
from attnkit.data.words import Encoded, encode_words, open_words
from attnkit.engine.checkpoint_metadata import read_bounded
from attnkit.errors import RunError
from attnkit.io import atomic
from attnkit.tasks.word2vec.config import WordTextConfig
from attnkit.text.lines import only_once
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_schema import MAX_BYTES

NAME = "words"
"""Of the folder in RUN/data that ``encode_words`` makes."""


def encoded_text(config: WordTextConfig, folder: Path, tell: Callable[[str], None]) -> Encoded:
    """Return the encoded text of a run, made in RUN/data unless that has been done.

    Raises:
        UsageError: a file does not exist, or has changed since the text was encoded.
        DataError: the text cannot be trained on.
        RunError: what was encoded is damaged.
    """
    if is_prepared(folder, config.files, None):
        with open_prepared_dir(folder):
            return open_words(folder / NAME)
    sources = [Path(name) for name in config.files]
    tokenizer = None if config.tokenizer is None else open_tokenizer(Path(config.tokenizer))
    with atomic.atomic_dir(folder) as temporary:
        found = encode_words(temporary / NAME, sources, config, tell, tokenizer)
        counts = {"words": found.n_raw}
        write_index(temporary, [path for path in sources if not only_once(path)], None, counts)
    opened = open_words(folder / NAME)
    return Encoded(opened.words, opened.store, opened.n_raw, found.warnings)


def open_tokenizer(path: Path) -> Tokenizer:
    """Return the vocabulary in a file of ``attnkit vocab``, or the one of a run (of its source side)."""
    from attnkit.text.tokenizer import load

    if not path.is_dir():
        return load(path)
    checkpoint = RunFolder(path).checkpoint()[0]
    if "tokenizer.json" not in checkpoint.manifest.files:
        raise RunError("this run has no vocabulary of tokens", where=str(path), help="name a file of attnkit vocab")
    return Tokenizer.from_json(read_bounded(checkpoint, "tokenizer.json", MAX_BYTES))
