"""Symbols added to a translator whose vocabulary was pruned are kept, and all else is as before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import torch
import transformers
from translators import SHAPES, m2m_folder, marian_folder, mbart_folder, nllb_folder, sentences, tokenizer_of

from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.resolve import inherited, resolve
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.tasks.translation.translator import load_translator

SYMBOLS = ["<b>", "</b>", "<medical>"]
MODELS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, str]]] = {
    "marian": (marian_folder, SHAPES["shared"], {}),
    "marian, two vocabularies": (marian_folder, SHAPES["untied, two vocabularies"], {}),
    "m2m100": (m2m_folder, {"end": 0.5}, {"src_lang": "en", "tgt_lang": "de"}),
    "nllb": (nllb_folder, {"end": 3.0}, {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}),
    "mbart": (mbart_folder, {"end": 2.5}, {"src_lang": "en_XX", "tgt_lang": "de_DE"}),
}
SETS = ["optimization.batch_tokens=400", "optimization.learning_rate=1e-30", "data.max_length=90", "data.held_out=5"]
SETS += ["limits.max_steps=1", "device=cpu", "precision=float32", "threads=1", "confidence=false"]
SETS += ["finetuning.freeze=[output]"]
QUICK: dict[str, Any] = {"beam_size": 1, "max_length": 20}


@pytest.mark.parametrize("name", MODELS)
def test_pruned_and_with_symbols(name: str, tmp_path: Path) -> None:
    make, changes, languages = MODELS[name]
    make(tmp_path / "hub", **changes)
    lines = sentences()[:20]
    marked = [f"{line.split()[0]} <b>{line}</b><medical>" for line in lines]
    texts = load_translator([import_huggingface(tmp_path / "hub", tmp_path / "whole", **languages).path]).translate(
        lines, **QUICK
    )
    for file, text in (("src", lines), ("tgt", texts)):
        (tmp_path / file).write_text("".join(f"{line}\n" for line in text))
    files = [tmp_path / "src", tmp_path / "tgt"]
    pruned = import_huggingface(tmp_path / "hub", tmp_path / "pruned", **languages, prune_vocab=files)
    assert pruned.n_pruned > 20
    for file, text in (("a", marked), ("b", marked[::-1])):
        (tmp_path / file).write_text("".join(f"{line}\n" for line in text))
    flags: dict[str, Any] = {"data.src": [str(tmp_path / "a")], "data.tgt": [str(tmp_path / "b")]}
    flags["extension.symbols"] = SYMBOLS
    run = tmp_path / "new"
    config = resolve(flags, sets=SETS, preset_name="tiny", fixed=inherited(pruned.path, run)).config
    for _ in train(TrainRequest(config, run, init_from=pruned.path)):
        pass
    old, new = load_run(pruned.path, device="cpu"), load_run(run, device="cpu", checkpoint="last")
    sides = [(old.src_tokenizer, new.src_tokenizer), (old.tgt_tokenizer, new.tgt_tokenizer)]
    for before, after in sides:
        for line in [*lines, *texts]:
            assert after.tokens(after.encode([line])[0]) == before.tokens(before.encode([line])[0])
        for row, line in zip(after.encode(marked), marked, strict=True):
            assert [row.count(after.token_id(one)) for one in SYMBOLS] == [line.count(one) for one in SYMBOLS]
    assert load_translator([run], checkpoint="last").translate(lines, **QUICK) == texts, "text is translated as before"
    # In transformers, ids and logits are ours; imported again, the run is the same.
    folder = export_huggingface(run, tmp_path / "back", checkpoint="last").path
    known = {"m2m100": "M2M100Tokenizer", "mbart": "MBart50Tokenizer"}.get(name)
    theirs = (
        tokenizer_of(folder) if known is None else getattr(transformers, known).from_pretrained(folder, **languages)
    )
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    orders = [torch.tensor(side.pieces.order) for _, side in sides if side.pieces is not None]
    plain, src = new.src_tokenizer.encode([*lines, *marked]), None
    for line, ids in zip([*lines, *marked], plain, strict=True):
        src = orders[0][[*ids, 2]]
        assert theirs(line).input_ids == src.tolist(), line
    assert src is not None
    (tgt,), first = new.tgt_tokenizer.encode(marked[-1:]), 1 if name.startswith("marian") else 2
    with torch.no_grad():
        ours = new.model.head(new.model.hidden(torch.tensor([[*plain[-1], 2]]), None, torch.tensor([[1, *tgt]])))[0]
        given = {"input_ids": src[None], "decoder_input_ids": orders[1][[first, *tgt]][None]}
        torch.testing.assert_close(ours[:, 2:], model(**given).logits[0][:, orders[1][2:]], rtol=0, atol=1e-4)
    again = load_run(import_huggingface(folder, tmp_path / "again", **languages).path, device="cpu")
    assert again.src_tokenizer.pieces is not None
    for line, ids in zip([*lines, *marked], plain, strict=True):
        (other,) = again.src_tokenizer.encode([line])
        assert [again.src_tokenizer.pieces.order[id] for id in other] == orders[0][ids].tolist()
    # Text without symbols may be pruned away again: symbols are kept.
    twice = import_huggingface(folder, tmp_path / "twice", **languages, prune_vocab=[tmp_path / "src"])
    side = load_run(twice.path, device="cpu").src_tokenizer
    assert all(side.token_id(symbol) is not None for symbol in SYMBOLS)
