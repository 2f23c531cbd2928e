"""A T5's text is cut as in transformers, with sentinels and with text before sources."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import hub_encoders
import sentencepiece
from t5_folders import T5_SHAPES, t5_folder
from test_t5_import import ImportedT5
from test_translator_odd_lines import SPECIAL, WHOLE, has_mark, same
from translators import odd_lines, sentences, tokenizer_of

from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.errors import UsageError
from attnkit.protocols import UNK_ID
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.translator import load_translator

GERMAN = "translate English to German:"
UNLIKE = re.compile("[\x1c-\x1f\x85]")
GAPS = [
    "<extra_id_0>",
    "a <extra_id_1> b",
    "ba<extra_id_99>be <extra_id_5>",
    "<extra_id_100> <extra_id_0",
    " <extra_id_7>",
]


def t5_lines() -> list[str]:
    lines = [*odd_lines(13000), *hub_encoders.odd_lines(3000), *sentences(), *GAPS]
    lines += [f"{gap} {line}<extra_id_3>" for gap, line in zip(GAPS * 40, sentences(), strict=False)]
    return list(dict.fromkeys(lines))


@pytest.fixture(scope="module", params=["", GERMAN, "summarize: <extra_id_0> "])
def cut(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ImportedT5:
    made = ImportedT5(tmp_path_factory.mktemp("cut"), "t5", request.param, odd=True)
    made.prefix = request.param  # type: ignore[attr-defined]
    return made


def test_five_thousand_odd_lines_have_the_ids_of_transformers(cut: ImportedT5) -> None:
    """Behind the text before sources, which is put before each of them in transformers too.

    Lines without sentinels are compared with SentencePiece too. Transformers' normalizer loses combining marks behind
    some characters, and takes a control for a space that is none in SentencePiece: such lines are not compared with it.
    """
    theirs, lines = tokenizer_of(cut.folder), t5_lines()
    prefix: str = cut.prefix  # type: ignore[attr-defined]
    ours = cut.run.src_tokenizer
    rows = [cut.order[row].tolist() for row in ours.encode(lines)]
    model = sentencepiece.SentencePieceProcessor(model_file=str(cut.folder / "spiece.model"))
    n_compared = 0
    for line, row in zip(lines, rows, strict=True):
        whole = f"{prefix} {line}" if prefix else line
        if "<extra_id" not in whole:
            assert same(ours, line, row, model.encode(whole)), ascii(line)
        if has_mark(line) or UNLIKE.search(line) or any(name in line for name in SPECIAL):
            continue
        *expected, end = theirs(whole, **({} if "<extra_id" in whole else WHOLE)).input_ids
        assert end == 1
        assert same(ours, line, row, expected), (ascii(line), row, expected)
        n_compared += 1
    assert n_compared > 5000, n_compared
    (target,) = cut.run.tgt_tokenizer.encode([lines[-1]])
    assert target == ours.encode([lines[-1]])[0][len(ours.code_ids) :], "targets have nothing before them"


def test_five_thousand_odd_lines_have_the_texts_of_sentencepiece(cut: ImportedT5) -> None:
    """And of transformers, whose decoder drops the spaces at both ends, and the sign of an unknown character."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(cut.folder / "spiece.model"))
    theirs, tokenizer = tokenizer_of(cut.folder), cut.run.tgt_tokenizer
    lines = [line for line in t5_lines() if "<extra_id" not in line]
    n_whole = 0
    for line, row in zip(lines, tokenizer.encode(lines), strict=True):
        known = [id for id in row if id != UNK_ID]
        (text,) = tokenizer.decode([known])
        assert text == model.decode(cut.order[known].tolist()), ascii(line)
        assert text.strip() == theirs.decode(cut.order[row], skip_special_tokens=True).strip(), ascii(line)
        n_whole += len(known) == len(row) and text != ""
    assert len(lines) > 5000 and n_whole > 2000


def test_the_files_of_newer_versions_give_the_same_vocabulary(tmp_path: Path) -> None:
    """Which have no SentencePiece file, but tokenizer.json."""
    t5_folder(tmp_path / "hub", odd=True)
    expected = load_run(import_huggingface(tmp_path / "hub", tmp_path / "run").path, device="cpu").src_tokenizer
    tokenizer_of(tmp_path / "hub").save_pretrained(tmp_path / "hub")
    (tmp_path / "hub/spiece.model").unlink()
    assert (tmp_path / "hub/tokenizer.json").exists()
    found = load_run(import_huggingface(tmp_path / "hub", tmp_path / "other").path, device="cpu").src_tokenizer
    lines = [*odd_lines(2000), *GAPS]
    assert found.encode(lines) == expected.encode(lines) and found.names == expected.names


def test_sentinels_have_the_ids_that_files_give_them(tmp_path: Path) -> None:
    t5_folder(tmp_path / "hub")
    n = len(sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "hub/spiece.model")))
    decoder = {str(n + i): {"content": f"<extra_id_{i}>"} for i in range(7)}
    (tmp_path / "hub/tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    tokenizer = load_run(import_huggingface(tmp_path / "hub", tmp_path / "run").path, device="cpu").src_tokenizer
    assert tokenizer.pieces is not None
    assert tokenizer.config.symbols == tuple(f"<extra_id_{i}>" for i in range(7))
    ids = tokenizer.encode(["<extra_id_0><extra_id_6>"])[0]
    assert [tokenizer.pieces.order[id] for id in ids] == [n, n + 6]


def test_text_before_sources_is_part_of_the_run(tmp_path: Path) -> None:
    """It translates what a run without it translates of lines with it."""
    plain, ours = ImportedT5(tmp_path / "a", "t5"), ImportedT5(tmp_path / "b", "t5", GERMAN)
    lines, settings = sentences()[:40], {"beam_size": 2, "max_length": 12}
    expected = load_translator([plain.path]).translate([f"{GERMAN} {line}" for line in lines], **settings)
    assert load_translator([ours.path]).translate(lines, **settings) == expected
    assert load_translator([plain.path]).translate(lines, **settings) != expected
    assert ours.run.vocabularies == plain.run.vocabularies, "they may be an ensemble"


REFUSED: dict[str, tuple[str, str]] = {
    "blank": ("  ", "the text before sources is blank"),
    "two lines": ("a\nb", "is not a line of text"),
    "half a character": ("a\ud800", "is not a line of text"),
    "long": ("a" * 1001, "has 1,001 characters, more than 1,000"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_text_that_cannot_be_before_sources_is_refused(name: str, tmp_path: Path) -> None:
    t5_folder(tmp_path / "hub", **T5_SHAPES["t5"])
    text, reason = REFUSED[name]
    with pytest.raises(UsageError, match=reason) as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run", source_prefix=text)
    assert caught.value.where == "--source-prefix" and not (tmp_path / "run").exists()


def test_languages_are_told_in_words(tmp_path: Path) -> None:
    t5_folder(tmp_path / "hub")
    with pytest.raises(UsageError, match="T5 and mT5 have no language codes") as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run", src_lang="en", tgt_lang="de")
    assert "--source-prefix" in str(caught.value.help)
