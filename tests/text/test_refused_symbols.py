"""What is refused as a symbol of an imported vocabulary, whose SentencePiece files may come from a stranger."""

from __future__ import annotations

import pytest

from attnkit.errors import UsageError
from attnkit.text.config import VocabularyConfig
from attnkit.text.extension import extend_vocabulary
from attnkit.text.piece_vocabulary import make_tree
from attnkit.text.sentencepiece_file import NORMAL, UNKNOWN, SentencePieceEntry, write_sentencepiece
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

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


@pytest.mark.parametrize("name", ["</s>", "<pad>", "<s>", "<mask>", "<unk>", "__en__"])
def test_no_symbol_contains_a_special_token(name: str) -> None:
    """Else transformers, which cuts text there first, would have other tokens."""
    for symbol in (f"{name}x", f"a{name}", f"a{name}b"):
        with pytest.raises(UsageError, match=f"the symbol '{symbol}' contains '{name}', a special entry"):
            extend_vocabulary(unigram(), [symbol])


def test_no_symbol_has_a_lone_surrogate() -> None:
    for tokenizer in (unigram(), train_vocabulary(["a b"] * 3, VocabularyConfig(size=280))):
        with pytest.raises(ValueError, match=r"the symbol 'a\\udcff' contains a lone surrogate"):
            extend_vocabulary(tokenizer, ["a\udcff"])


@pytest.mark.parametrize("score", [-3e38, -1e38])
def test_scores_that_no_file_can_hold(score: float) -> None:
    """The sum of two scores of a hostile file is more than 32 bits hold."""
    with pytest.raises(UsageError, match="the scores of new pieces are too large for a SentencePiece file") as caught:
        extend_vocabulary(unigram(score=score), (), ["abababab abab abababab"] * 3, 9)
    assert caught.value.lines()[1:] == ["  at extension", "help: begin from a model whose scores are usual ones"]


@pytest.mark.parametrize(("symbols", "lines"), [([], ["ab ab"]), (["<b>"], None), (["<b>"], ["ab ab"])])
def test_a_vocabulary_that_is_no_translators_takes_nothing(symbols: list[str], lines: list[str] | None) -> None:
    with pytest.raises(UsageError, match="takes no new symbols or entries") as caught:
        extend_vocabulary(unigram("anywhere"), symbols, lines, 5)
    assert caught.value.lines()[1:] == ["  at extension", "help: supported: translators"]
