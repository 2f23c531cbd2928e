"""A vocabulary without what given text does not use cuts and translates this text as before."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import sentencepiece
import torch
import transformers
from t5_folders import T5_SHAPES, t5_folder
from translators import (
    SHAPES,
    m2m_folder,
    marian_folder,
    mbart_folder,
    nllb_folder,
    odd_lines,
    pieces,
    sentences,
    tokenizer_of,
)

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.config import VocabularyConfig
from attnkit.text.piece_vocabulary import PieceVocabulary, make_tree
from attnkit.text.pruning import PieceUse
from attnkit.text.sentencepiece import SentencePiece
from attnkit.text.sentencepiece_file import read_sentencepiece, with_pieces

MODELS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, str]]] = {
    **{f"marian, {name}": (marian_folder, changes, {}) for name, changes in SHAPES.items()},
    "m2m100": (m2m_folder, {"d_model": 48, "seed": 4, "end": 1.5}, {"src_lang": "en", "tgt_lang": "de"}),
    "nllb": (nllb_folder, {}, {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}),
    "mbart": (mbart_folder, {"end": 2.5}, {"src_lang": "en_XX", "tgt_lang": "de_DE"}),
    "t5": (t5_folder, T5_SHAPES["t5"], {}),
    "mt5": (t5_folder, T5_SHAPES["mt5"], {}),
    "t5, text before sources": (t5_folder, T5_SHAPES["t5 v1.1"], {"source_prefix": "be do:"}),
}
SETTINGS: dict[str, Any] = {"max_length": 20, "length_penalty": 1.0}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", MODELS)
def test_the_texts_are_cut_and_translated_as_before(name: str, tmp_path: Path) -> None:
    make, changes, languages = MODELS[name]
    make(tmp_path / "hub", **changes)
    whole = import_huggingface(tmp_path / "hub", tmp_path / "whole", **languages)
    lines, translations = translated(whole.path, [*sentences()[:30], *odd_lines(25)])
    assert len(lines) > 10 and {*lines} & {*sentences()}
    files = []
    for file, text in (("src", lines), ("tgt", translations)):
        files.append(tmp_path / file)
        files[-1].write_text("".join(line.replace("\n", " ") + "\n" for line in text), newline="")
    pruned = import_huggingface(tmp_path / "hub", tmp_path / "pruned", **languages, prune_vocab=files)
    before, after = (load_run(run.path, device="cpu") for run in (whole, pruned))
    assert pruned.n_pruned == whole.vocab_size - pruned.vocab_size > 20
    assert pruned.n_pruned_bytes == 4 * (whole.n_parameters - pruned.n_parameters)
    size = sum(file.stat().st_size for file in whole.path.glob("checkpoints/*/model.safetensors"))
    smaller = sum(file.stat().st_size for file in pruned.path.glob("checkpoints/*/model.safetensors"))
    assert size - smaller == pytest.approx(pruned.n_pruned_bytes, abs=200)
    for old, new in ((before.src_tokenizer, after.src_tokenizer), (before.tgt_tokenizer, after.tgt_tokenizer)):
        assert old.pieces is not None and new.pieces is not None
        for line in [*lines, *translations]:
            ids = [old.pieces.names[id] for id in old.encode([line])[0]]
            assert [new.pieces.names[id] for id in new.encode([line])[0]] == ids, ascii(line)
    assert load_translator([pruned.path]).translate(lines, beam_size=1, **SETTINGS) == translations
    assert set(after.src_tokenizer.language_codes) == set(before.src_tokenizer.language_codes)
    # The rows of kept entries are what they were.
    named = before.tgt_tokenizer.pieces, after.tgt_tokenizer.pieces
    assert named[0] is not None and named[1] is not None
    same = [named[0].names.index(name) for name in named[1].names]
    rows = before.src_tokenizer.encode(lines), after.src_tokenizer.encode(lines)
    for old_row, new_row in zip(*rows, strict=True):
        src, new_src = (torch.tensor([[*row, 2]]) for row in (old_row, new_row))
        with torch.no_grad():
            logits = before.model.head(before.model.hidden(src, None, torch.tensor([[1, 2]])))[0]
            found = after.model.head(after.model.hidden(new_src, None, torch.tensor([[1, 2]])))[0]
        torch.testing.assert_close(found, logits[:, same], rtol=0, atol=1e-5)
    again = export_huggingface(pruned.path, tmp_path / "back").path
    assert json.loads((again / "config.json").read_text())["vocab_size"] == len(set(orders(after.src_tokenizer)))
    back = import_huggingface(again, tmp_path / "again", **languages).path
    assert load_run(back, device="cpu").src_tokenizer.fingerprint == after.src_tokenizer.fingerprint
    assert load_translator([back]).translate(lines, beam_size=1, **SETTINGS) == translations
    theirs = their_tokenizer(again, languages) if "src_lang" in languages else tokenizer_of(again)
    for line in sorted({*lines} & {*sentences()}):
        (ids,) = after.src_tokenizer.encode([line])
        given = " ".join([*languages.get("source_prefix", "").split(), line])
        assert theirs(given).input_ids == [orders(after.src_tokenizer)[id] for id in [*ids, 2]]


def translated(run: Path, lines: list[str]) -> tuple[list[str], list[str]]:
    """Return lines with their translations, of those translations that are cut into the pieces of which they are made.

    What was made of other pieces may need one that its text does not use. Codes and sentinels are kept in any case.
    """
    translator = load_translator([run])
    tokenizer = translator.tgt_tokenizer
    made = list(translator.stream(lines, translator.configure({"beam_size": 1, **SETTINGS})))
    cut = tokenizer.encode([one.outputs[0].text for one in made])
    own = [[[id for id in ids if not tokenizer.is_symbol(id)] for ids in one.outputs[0].ids] for one in made]
    ours = [[id for id in ids if not tokenizer.is_symbol(id)] for ids in cut]
    kept = [one for one, found, ids in zip(made, own, ours, strict=True) if found == [ids]]
    return [one.source for one in kept], [one.outputs[0].text for one in kept]


def orders(tokenizer: Any) -> list[int]:
    return list(tokenizer.pieces.order)


def their_tokenizer(folder: Path, languages: dict[str, str]) -> Any:
    name = json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"]
    return getattr(transformers, name).from_pretrained(folder, **languages)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sentencepiece_cuts_with_the_kept_pieces_as_before(kind: str) -> None:
    raw, source = pieces(kind), random.Random(4)
    names = {piece.text: id for id, piece in enumerate(read_sentencepiece(raw).pieces)}
    roles: dict[str, str | None] = {"pad": "</s>", "bos": None, "eos": "<s>", "unk": "<unk>"}
    config = VocabularyConfig(kind="sentencepiece", size=len(names) + 1, multiple_of=1, min_frequency=1)
    vocabulary = PieceVocabulary(config, make_tree(raw, names, roles, len(names), "marked"))
    everything = [*sentences(), *odd_lines(600)]
    whole = sentencepiece.SentencePieceProcessor(model_proto=raw)
    sizes = set()
    for _ in range(8):
        lines = source.sample(everything, source.choice([1, 3, 20]))
        use = PieceUse(vocabulary)
        use.add(lines)
        kept = use.kept_pieces()
        part = with_pieces(raw, kept)
        theirs, ours = sentencepiece.SentencePieceProcessor(model_proto=part), SentencePiece(read_sentencepiece(part))
        texts = [piece.text for piece in read_sentencepiece(part).pieces]
        for line, ids in zip(lines, ours.encode(lines), strict=True):
            expected = whole.encode(line, out_type=str)
            assert theirs.encode(line, out_type=str) == expected
            assert [texts[id] for id in ids] == [piece if piece in names else "<unk>" for piece in expected]
        sizes.add(len(kept))
    assert max(sizes) < len(names) - 20 and len(sizes) > 3


def test_the_command_says_what_it_saved(call: Any, tmp_path: Path) -> None:
    nllb_folder(tmp_path / "hub")
    (tmp_path / "a").write_text("".join(line + "\n" for line in sentences()[:5]))
    words = ["import", "huggingface", tmp_path / "hub", "--src-lang", "eng_Latn", "--tgt-lang", "deu_Latn"]
    code, out, err = call(*words, "-o", tmp_path / "run", "--prune-vocab", tmp_path / "a")
    first = out.splitlines()[0]
    assert code == 0 and first.startswith("pruned ") and first.endswith(" of 306 entries, 0.0 MB"), (out, err)
    code, out, _ = call(*words, "-o", tmp_path / "run2", "--prune-vocab", tmp_path / "a", "--json")
    assert code == 0 and json.loads(out)["n_pruned_bytes"] == 4 * 33 * json.loads(out)["n_pruned"]
    code, out, err = call(*words, "-o", tmp_path / "no", "--prune-vocab", tmp_path / "missing")
    assert (code, out) == (2, "") and "missing" in err and not (tmp_path / "no").exists(), err
    (tmp_path / "bad").write_bytes(b"\xff\xfe\x41\n")
    assert call(*words, "-o", tmp_path / "no", "--prune-vocab", tmp_path / "bad")[0] == 3


def test_another_model_is_refused(call: Any, tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=300, n_embd=8, n_layer=1, n_head=1)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "hub")
    (tmp_path / "a").write_text("a\n")
    code, _, err = call(
        "import", "huggingface", tmp_path / "hub", "-o", tmp_path / "run", "--prune-vocab", tmp_path / "a"
    )
    assert code == 2 and "vocabularies of gpt2 cannot be pruned" in err and "marian, m2m_100, mbart" in err
