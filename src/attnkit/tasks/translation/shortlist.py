"""Uses of a lexicon in translation: a shortlist of target tokens, and words in the place of unknown ones."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import UsageError
from attnkit.protocols import UNK_ID
from attnkit.text.tokenizer import Tokenizer, cut
from attnkit.text.translation_lexicon import load_dictionary, load_tokens

FREQUENT = 200  #: the target's most frequent tokens that every sentence may use


class LexiconShortlist:
    """The target tokens that the translation of a sentence may use."""

    def __init__(self, path: Path, src: Tokenizer, tgt: Tokenizer) -> None:
        """Read a lexicon of the tokens of these vocabularies.

        Raises:
            RunError: It is missing, damaged, of words, or of other vocabularies.
        """
        vocabularies = (src.fingerprint, tgt.fingerprint)
        self._lexicon = load_tokens(path, vocabularies, (src.vocab_size, tgt.vocab_size))
        self._always = np.zeros(tgt.vocab_size, bool)
        self._always[self._lexicon.frequent[:FREQUENT]] = self._always[self._lexicon.of(-1)] = True
        self._joint = vocabularies[0] == vocabularies[1]

    def of(self, ids: Sequence[int]) -> NDArray[np.int32]:
        """Return the target ids that a source of these ids may become, ascending.

        They are the translations of each, of NULL, the most frequent ones, and, in a vocabulary of both sides, the
        source's own, so that names can be copied.
        """
        allowed = self._always.copy()
        for id in set(ids):
            allowed[self._lexicon.of(id)] = True
        if self._joint:
            allowed[np.array(ids, np.int64)] = True
        return np.flatnonzero(allowed).astype(np.int32)


class UnknownReplacer:
    """Replaces ``<unk>`` by words, in vocabularies of whole words."""

    def __init__(self, path: Path | None, src: Tokenizer, tgt: Tokenizer) -> None:
        """Read a lexicon of words, if there is one.

        Raises:
            UsageError: The vocabularies are not of words.
            RunError: The lexicon is missing, damaged, or of tokens.
        """
        for tokenizer in (src, tgt):
            kind = tokenizer.config.kind
            if kind != "word":
                raise UsageError(
                    f"--replace-unknowns requires a word vocabulary; this run's kind is {kind}",
                    help="train with --set vocabulary.kind=word, or remove --replace-unknowns",
                )
        self._src, self._tgt = src, tgt
        self.dictionary = {} if path is None else load_dictionary(path)

    def text(self, ids: Sequence[int], attention: NDArray[np.float32], source: str) -> str:
        """Return a translation's text, each unknown word replaced by the source word with the most attention.

        That word is translated if the dictionary has it. ``attention`` (len(ids), S) is over the source's tokens and
        its end, which is not a word.
        """
        words = source_words(source, self._src)
        pieces = []
        for id, weights in zip(ids, attention, strict=True):
            piece = self._tgt.bytes_of(id).decode("utf-8", errors="replace")
            if id == UNK_ID:
                ranked = np.argsort(-weights[: len(words)], kind="stable")
                spelt, normalized = next((words[i] for i in ranked if words[i][0].strip()), (None, ""))
                if spelt is not None:
                    piece = " " + (self.dictionary.get(spelt) or self.dictionary.get(normalized) or spelt)
            pieces.append(piece)
        return "".join(pieces).removeprefix(" ")


def source_words(line: str, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """Return the word behind each token of a line, for a vocabulary of words: as it is written, and as it is seen."""
    found = []
    for chunk in cut(line, runs=False):
        seen = tokenizer.normalize(" " + chunk).split(" ")[1:]
        # Normalization may make spaces of other signs, and so several words of one.
        found += [(chunk, seen[0])] if len(seen) == 1 else [(word, word) for word in seen]
    return found
