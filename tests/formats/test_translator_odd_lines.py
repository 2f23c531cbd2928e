"""Tokenizers of translators give transformers' ids and texts on odd lines.

In three things attnkit differs, and follows SentencePiece, by which the models were trained:

- The name of a special token in a text, such as ``</s>``, is ordinary text, as in transformers with
  ``split_special_tokens``. MBart50Tokenizer takes it for the token in any case.
- NllbTokenizer and MBart50Tokenizer keep the space at the end of a text as a piece of its own.
- Their ``Precompiled`` loses combining marks behind some characters.

In a run of one character or syllable, a unigram model may have several cuts of one score: their order may differ. An
unknown piece is ``<unk>`` in a text; transformers leaves it out, as a special token.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import hub_encoders
import sentencepiece
import transformers
from translators import m2m_folder, marian_folder, mbart_folder, nllb_folder, odd_lines, tokenizer_of

from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.protocols import UNK_ID
from attnkit.tasks.translation.loading import load_run
from attnkit.text.tokenizer import Tokenizer

SEPARATE = {"separate": True, "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[str, str] | None]] = {
    "marian": (marian_folder, {}, None),
    "marian, two vocabularies": (marian_folder, SEPARATE, None),
    "m2m100": (m2m_folder, {}, ("en", "de")),
    "nllb": (nllb_folder, {"saved": True}, ("eng_Latn", "deu_Latn")),
    "mbart": (mbart_folder, {}, ("en_XX", "de_DE")),
}
CLASSES = {"m2m100": "M2M100Tokenizer", "nllb": "NllbTokenizer", "mbart": "MBart50Tokenizer"}
SPECIAL = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")
WHOLE = {"split_special_tokens": True}


@cache
def all_lines(name: str) -> list[str]:
    """Return the lines of both generators without repeats, for Marian also some behind codes.

    For NLLB-200 and mBART-50 there are more of those in which transformers does not differ from SentencePiece.
    """
    lines = [*odd_lines(5000), *hub_encoders.odd_lines(3000)]
    if name in ("nllb", "mbart"):
        lines += [line for line in odd_lines(9000, 9) if not has_mark(line) and not any(map(line.count, SPECIAL))]
    if name.startswith("marian"):
        lines += [f"{code}{line}" for line in lines[:150] for code in (">>fr<<", ">>de<< ", ">>xx<<", ">> ")]
    return list(dict.fromkeys(lines))


class Tokenizers:
    """Both tokenizers of a folder: those of transformers and of the run made of it."""

    def __init__(self, name: str, place: Path) -> None:
        make, changes, self.languages = CASES[name]
        self.name, folder = name, place / "hub"
        make(folder, odd=True, **changes)
        src, tgt = self.languages or (None, None)
        run = load_run(import_huggingface(folder, place / "run", src_lang=src, tgt_lang=tgt).path, device="cpu")
        self.sides = {"src": run.src_tokenizer, "tgt": run.tgt_tokenizer}
        if self.languages is None:
            self.theirs, files = tokenizer_of(folder), ("source.spm", "target.spm")
        else:
            self.theirs = getattr(transformers, CLASSES[name]).from_pretrained(folder, src_lang=src, tgt_lang=tgt)
            files = ("sentencepiece.bpe.model",) * 2
        self.models = {
            side: sentencepiece.SentencePieceProcessor(model_file=str(folder / file))
            for side, file in zip(self.sides, files, strict=True)
        }
        self.ours = {side: tokenizer.encode(all_lines(name)) for side, tokenizer in self.sides.items()}

    def rows(self, side: str) -> list[list[int]]:
        """Return our ids of all lines, as those of transformers."""
        pieces = self.sides[side].pieces
        assert pieces is not None
        return [[pieces.order[id] for id in row] for row in self.ours[side]]

    def of_transformers(self, side: str, lines: list[str], **options: Any) -> list[list[int]]:
        """Return the ids that transformers gives to lines, without EOS."""
        given = {"text_target": lines} if side == "tgt" else {"text": lines}
        rows = self.theirs(**given, **options).input_ids
        assert all(row[-1] == self.theirs.eos_token_id for row in rows)
        return [row[:-1] for row in rows]


@pytest.fixture(scope="module", params=CASES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    return Tokenizers(request.param, tmp_path_factory.mktemp("odd"))


def has_mark(line: str) -> bool:
    """Return whether a character belongs to the one before it."""
    return any(unicodedata.category(character)[0] == "M" or character in "\uff9e\uff9f" for character in line)


def same(tokenizer: Tokenizer, line: str, ours: list[int], expected: list[int]) -> bool:
    """Return whether ids are equal, but for the order of pieces in a run of one part, such as éé and é, lyly and ly."""
    assert tokenizer.pieces is not None
    run = re.search(r"(.{1,4}?)\1\1", tokenizer.pieces.normalize(line))
    return ours == expected or (run is not None and sorted(ours) == sorted(expected))


@pytest.mark.parametrize("side", ["src", "tgt"])
def test_ids_are_those_of_transformers(both: Tokenizers, side: str) -> None:
    lines, slow = all_lines(both.name), both.name not in ("nllb", "mbart")
    space, n_compared = both.theirs.convert_tokens_to_ids("▁"), 0
    chosen = [(line, row) for line, row in zip(lines, both.rows(side), strict=True) if slow or not has_mark(line)]
    for named, options in ((False, {}), (True, WHOLE)):
        pairs = [pair for pair in chosen if any(name in pair[0] for name in SPECIAL) == named]
        if named and both.name == "mbart":
            continue
        rows = both.of_transformers(side, [line for line, _ in pairs], **options)
        for (line, row), expected in zip(pairs, rows, strict=True):
            ends = None if slow else both.theirs.backend_tokenizer.normalizer.normalize_str(line)[-1:]
            spare = [space] if ends in (" ", "▁") else []
            assert same(both.sides[side], line, [*row, *spare], expected), (ascii(line), options)
        n_compared += len(pairs)
    assert n_compared >= 5000, n_compared


@pytest.mark.parametrize("side", ["src", "tgt"])
def test_pieces_are_those_of_sentencepiece(both: Tokenizers, side: str) -> None:
    """Of every line, also where transformers differs from it."""
    lines = [line for line in all_lines(both.name) if not line.startswith(">>")]
    rows = [row for line, row in zip(all_lines(both.name), both.rows(side), strict=True) if not line.startswith(">>")]
    both.theirs._switch_to_target_mode() if side == "tgt" else both.theirs._switch_to_input_mode()
    code = [] if both.languages is None else both.of_transformers(side, [""])[0]
    for line, row, cut in zip(lines, rows, both.models[side].encode(lines, out_type=str), strict=True):
        expected = [*code, *both.theirs.convert_tokens_to_ids(cut)]
        assert same(both.sides[side], line, row, expected), ascii(line)


def test_texts_are_those_of_transformers(both: Tokenizers) -> None:
    """Of targets, from which those of sources differ in nothing but the code of the language."""
    tokenizer, n_whole = both.sides["tgt"], 0
    for row, known in zip(both.rows("tgt"), both.ours["tgt"], strict=True):
        text = both.theirs.decode(row, skip_special_tokens=True)
        if UNK_ID not in known:
            assert tokenizer.decode([known]) == [text], ascii(text)
            n_whole += text != ""
        else:
            left = [id for id in known if id != UNK_ID]
            assert tokenizer.decode([left])[0].strip() == text.strip(), ascii(text)
    assert n_whole > 2000
