"""Lexicon-based target shortlists and replacement of unknown words."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import UsageError
from attnkit.protocols import UNK_ID
from attnkit.text.tags import without_side
from attnkit.text.tokenizer import Tokenizer, cut
from attnkit.text.translation_lexicon import load_dictionary, load_tokens

FREQUENT = 200  #: number of frequent target tokens allowed in every translation


class LexiconShortlist:
    """Shortlist of the target tokens allowed for a source sentence."""

    def __init__(self, path: Path, src: Tokenizer, tgt: Tokenizer) -> None:
        """Load a token lexicon for these vocabularies.

        Raises:
            RunError: The lexicon is missing or damaged, or made for words or other vocabularies.
        """
        vocabularies = (src.fingerprint, tgt.fingerprint)
        self._lexicon = load_tokens(path, vocabularies, (src.vocab_size, tgt.vocab_size))
        self._always = np.zeros(tgt.vocab_size, bool)
        self._always[self._lexicon.frequent[:FREQUENT]] = self._always[self._lexicon.of(-1)] = True
        # A language code, or text before sources, is all that may differ.
        self._joint = without_side(src).fingerprint == without_side(tgt).fingerprint

    def of(self, ids: Sequence[int], more: Sequence[int] = ()) -> NDArray[np.int32]:
        """Return the target ids allowed for source ``ids``, in ascending order.

        These are ``more``, the translations of each id and of NULL, the most frequent tokens and, with a joint
        vocabulary, the source ids themselves, so that names can be copied.
        """
        allowed = self._always.copy()
        for id in set(ids):
            allowed[self._lexicon.of(id)] = True
        allowed[np.array(more, np.int64)] = True
        if self._joint:
            allowed[np.array(ids, np.int64)] = True
        return np.flatnonzero(allowed).astype(np.int32)


class UnknownReplacer:
    """Replacer of ``<unk>`` in translations; for word vocabularies only."""

    def __init__(self, path: Path | None, src: Tokenizer, tgt: Tokenizer) -> None:
        """Load the word lexicon, if a path is given.

        Raises:
            UsageError: A vocabulary is not a word vocabulary.
            RunError: The lexicon is missing or damaged, or made for tokens.
        """
        for tokenizer in (src, tgt):
            kind = tokenizer.config.kind
            if kind != "word":
                raise UsageError(
                    f"--replace-unknowns requires a word vocabulary; this run has a vocabulary of kind {kind}",
                    help="train with --set vocabulary.kind=word, or remove --replace-unknowns",
                )
        self._src, self._tgt = src, tgt
        self.dictionary = {} if path is None else load_dictionary(path)

    def text(self, ids: Sequence[int], attention: NDArray[np.float32], source: str) -> str:
        """Return the text of a translation with each ``<unk>`` replaced by a word.

        It is the source word with the highest attention, translated if the dictionary has it. ``attention``
        (len(ids), S) covers the source tokens and EOS; EOS is never chosen.
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
    """Return (written, normalized) words, one per token, for a word vocabulary."""
    found = []
    for chunk in cut(line, runs=False):
        seen = tokenizer.normalize(" " + chunk).split(" ")[1:]
        # Normalization may turn other characters into spaces, which splits a word into several.
        found += [(chunk, seen[0])] if len(seen) == 1 else [(word, word) for word in seen]
    return found
