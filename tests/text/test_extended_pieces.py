"""What is refused as a symbol of an imported vocabulary, whose SentencePiece files may come from a stranger."""

from __future__ import annotations

import pytest

from attnkit.errors import UsageError
from attnkit.text.config import VocabularyConfig
from attnkit.text.extension import extend_vocabulary
from attnkit.text.piece_vocabulary import make_tree
from attnkit.text.sentencepiece_file import NORMAL, UNKNOWN, SentencePieceEntry, write_sentencepiece
from attnkit.text.tokenizer import Tokenizer

LETTERS = "▁abo<>"


def unigram(codes: str = "spaced", score: float = -5.0) -> Tokenizer:
    """Return a unigram vocabulary of letters, with a language code or, with ``anywhere``, a mask."""
    letters = [SentencePieceEntry(letter, score, NORMAL) for letter in LETTERS]
    roles = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"}
    code = "<mask>" if codes == "anywhere" else "__en__"
    vocabulary = {name: id for id, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *LETTERS, code])}
    raw = write_sentencepiece([SentencePieceEntry("<unk>", 0.0, UNKNOWN), *letters], b"")
    config = VocabularyConfig(kind="sentencepiece", size=20, multiple_of=1, min_frequency=1, symbols=(code,))
    return Tokenizer(config, make_tree(raw, vocabulary, roles, len(vocabulary), codes))  # type: ignore[arg-type]


def test_a_later_symbol_breaks_no_earlier_one() -> None:
    first = extend_vocabulary(unigram(), ["<aa>"])
    with pytest.raises(UsageError, match="the known symbol '<aa>' would consist of new ones") as caught:
        extend_vocabulary(first, ["a"])
    assert caught.value.help == "choose a name that no text contains, such as <med>"
    with pytest.raises(UsageError, match="the symbol '<aa>' consists of other symbols"):
        extend_vocabulary(unigram(), ["<aa>", "a"])
    second = extend_vocabulary(first, ["<b>"])
    for line in ("b <aa> bo", "o<aa><b>a"):
        assert "<aa>" in second.tokens(second.encode([line])[0])
