"""New pieces of a Marian whose two SentencePiece files know different scripts, as those of OPUS-MT often do."""

from __future__ import annotations

import io
import random
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import sentencepiece
import torch
import translators
from translators import marian_folder

from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.resolve import inherited, resolve
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.text.extension import extend_vocabularies, shared_row_origins

SCRIPTS = {"unigram": ["ba", "be", "do", "ing", "lo"], "bpe": ["ма", "ни", "ко", "ру", "ть"]}  #: source, target
SETS = ["optimization.learning_rate=1e-30", "data.held_out=5", "limits.max_steps=1", "device=cpu", "threads=1"]
SETS += ["precision=float32", "confidence=false"]


def lines_of(syllables: list[str], seed: int, n: int = 60) -> list[str]:
    drawn = random.Random(seed)
    words = ["".join(drawn.choices(syllables, k=drawn.randint(1, 3))) for _ in range(60)]
    return [" ".join(drawn.choices(words, k=drawn.randint(2, 6))) for _ in range(n)]


def spm(kind: str) -> bytes:
    """Return a SentencePiece file of one script, with few pieces but its characters."""
    made, lines = io.BytesIO(), iter(lines_of(SCRIPTS[kind], 1, 300))
    options = {"vocab_size": 24, "model_type": kind, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=made, **options)
    return made.getvalue()


def symbol_of(syllables: list[str]) -> str:
    return 2 * "".join(syllables)


def extended(place: Path, syllables: list[str]) -> tuple[LoadedRun, LoadedRun]:
    """Return an imported run, and one with pieces for words of some syllables that begins from it."""
    old = import_huggingface(place / "hub", place / "run").path
    run = place / "".join(syllables)
    for name, parts in zip(("src", "tgt", "new"), (*SCRIPTS.values(), syllables), strict=True):
        (place / name).write_text("".join(f"{line}\n" for line in lines_of(parts, 2)))
    src, tgt, text = ([str(place / name)] for name in ("src", "tgt", "new"))
    flags: dict[str, list[str] | int] = {
        "data.src": src,
        "data.tgt": tgt,
        "extension.files": text,
        "extension.entries": 20,
    }
    flags["extension.symbols"] = [symbol_of(syllables)]
    resolved = resolve(flags, sets=SETS, preset_name="tiny", fixed=inherited(old, run))
    for _ in train(TrainRequest(resolved.config, run, init_from=old)):
        pass
    return load_run(old, device="cpu"), load_run(run, device="cpu", checkpoint="last")


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_shared_row_begins_from_the_side_that_has_the_piece(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translators, "pieces", spm)
    marian_folder(tmp_path / "hub")
    old, new = extended(tmp_path, SCRIPTS[kind])
    assert old.config.model.tie_embeddings == "all" and old.src_tokenizer.names == old.tgt_tokenizer.names
    before = old.src_tokenizer if kind == "unigram" else old.tgt_tokenizer
    learned = [name for name in new.tgt_tokenizer.names if name not in old.tgt_tokenizer.names]
    assert before.pieces is not None and len(learned) > 5
    weights = [run.model.state_dict() for run in (old, new)]
    known = list[str]()
    for name in learned:
        (ids,) = before.pieces.encode_normalized([name])
        if 3 in ids:  # of the other script: its side has learned it as characters
            continue
        known.append(name)
        id = new.tgt_tokenizer.names.index(name)
        for key in ("encoder.embedding.words.weight", "output.bias"):
            torch.testing.assert_close(weights[1][key][id], weights[0][key][ids].mean(0), msg=f"{name} in {key}")
    assert len(known) > 5 and symbol_of(SCRIPTS[kind]) in known


def test_symbols_are_added_to_symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with characters of regular expressions are text, and earlier symbols keep their rows and stay single."""
    monkeypatch.setattr(translators, "pieces", spm)
    marian_folder(tmp_path / "hub")
    old = load_run(import_huggingface(tmp_path / "hub", tmp_path / "run").path, device="cpu")
    calls = [["<b>", "a.*b"], ["[x]", "</b>", "(b|a"]]
    sides = [(old.src_tokenizer, old.tgt_tokenizer)]
    for symbols in calls:
        sides.append(extend_vocabularies(*sides[-1], symbols, lambda: lines_of(["ba", "ни"], 4), 5))
    for before, after in pairwise(sides):
        origins = dict(zip(after[0].names, shared_row_origins(before, after), strict=True))
        assert after[0].names == after[1].names and len(after[0].names) > len(before[0].names)
        assert [origins[name] for name in before[0].names] == [[id] for id in range(before[0].vocab_size)]
    every = [*calls[0], *calls[1]]
    lines = [f"ba{one}be {other} до{one}{other}" for one in every for other in every]
    for side in sides[-1]:
        assert side.pieces is not None
        model = sentencepiece.SentencePieceProcessor(model_proto=side.pieces.raw)
        assert side.pieces.encode_pieces(lines) == model.encode(lines)
        for line, row in zip(lines, side.encode(lines), strict=True):
            for symbol in every:
                id = side.token_id(symbol)
                assert id is not None and row.count(id) == line.count(symbol), line
