"""Symbols added to imported translators are single tokens for attnkit, sentencepiece, transformers and CTranslate2."""

from __future__ import annotations

import json
import random
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import numpy as np
import sentencepiece
import torch
import transformers
from translators import SHAPES, m2m_folder, marian_folder, mbart_folder, nllb_folder, odd_lines, sentences, tokenizer_of

import attnkit
from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.export_marian import export_marian
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.resolve import inherited, resolve
from attnkit.errors import UsageError
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.score import score_pairs
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.extension import extend_vocabulary
from attnkit.text.tokenizer import Tokenizer

SYMBOLS = ["<b>", "</b>", "<medical>", ">>nld<<", "baing"]
MODELS: dict[str, tuple[Callable[..., Any], tuple[str, str] | None, dict[str, Any], int]] = {
    "marian": (marian_folder, None, SHAPES["shared"], 5),
    "marian, two tables": (marian_folder, None, SHAPES["two tables"], 5),
    "marian, two vocabularies": (marian_folder, None, SHAPES["untied, two vocabularies"], 5),
    "m2m100": (m2m_folder, ("en", "de"), {"end": 0.5}, 0),  # its eight unused rows suffice
    "nllb": (nllb_folder, ("eng_Latn", "deu_Latn"), {"end": 3.0, "seed": 5}, 5),
    "mbart": (mbart_folder, ("en_XX", "de_DE"), {"end": 2.5}, 5),
}
"""Folder, languages, and the number of rows that five symbols add."""
SETS = ["optimization.batch_tokens=400", "optimization.learning_rate=1e-30", "data.max_length=90", "data.held_out=5"]
SETS += ["limits.max_steps=1", "device=cpu", "precision=float32", "threads=1", "confidence=false"]


def with_symbols(lines: list[str], seed: int = 4) -> list[str]:
    """Return lines with symbols: at the ends, between spaces, in words, and next to each other."""
    source, marked = random.Random(seed), []
    for line in lines:
        places = [source.choice([0, len(line), source.randint(0, len(line))]) for _ in range(source.randint(1, 4))]
        for at in sorted(places, reverse=True):  # from the end, so that none is inside of another
            line = line[:at] + source.choice(SYMBOLS + [f"{one} " for one in SYMBOLS]) + line[at:]
        marked.append(" ".join(line.split()))
    return marked


class Extended:
    """An imported run, and one with more symbols that begins from it."""

    def __init__(self, place: Path, name: str) -> None:
        make, self.languages, changes, self.n_rows = MODELS[name]
        self.name, self.place = name.partition(",")[0], place
        make(place / "hub", **changes)
        self.options: dict[str, Any] = dict(zip(("src_lang", "tgt_lang"), self.languages or (), strict=False))
        self.old = load_run(import_huggingface(place / "hub", place / "run", **self.options).path, device="cpu")
        for side, first in (("a", 0), ("b", 200)):
            text = with_symbols(sentences()[first : first + 60])
            (place / side).write_text("".join(f"{line}\n" for line in text))
        freeze = ["finetuning.freeze=[output]"]  # M2M100 and NLLB-200 have no bias of the output layer
        self.path = self.train("new", place / "run", {"extension.symbols": SYMBOLS}, freeze)
        self.new = load_run(self.path, device="cpu", checkpoint="last")

    def train(self, name: str, base: Path, flags: dict[str, Any], sets: list[str] | None = None) -> Path:
        """Train a run from another."""
        run = self.place / name
        files = {"data.src": [str(self.place / "a")], "data.tgt": [str(self.place / "b")]}
        resolved = resolve(files | flags, sets=SETS + (sets or []), preset_name="tiny", fixed=inherited(base, run))
        for _ in train(TrainRequest(resolved.config, run, init_from=base)):
            pass
        return run


@pytest.fixture(scope="module", params=MODELS)
def extended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Extended:
    return Extended(tmp_path_factory.mktemp("symbols"), request.param)


def sides(run: LoadedRun) -> tuple[Tokenizer, Tokenizer]:
    return run.src_tokenizer, run.tgt_tokenizer


def test_symbols_are_single_tokens_and_other_text_is_cut_as_before(extended: Extended) -> None:
    plain = [line for line in [*odd_lines(300), *sentences()[:300]] if not any(one in line for one in SYMBOLS)]
    marked = with_symbols(sentences()[:200])
    for old, new in zip(sides(extended.old), sides(extended.new), strict=True):
        assert new.vocab_size == old.vocab_size + extended.n_rows and len(plain) > 400
        assert new.encode(plain) == old.encode(plain)
        ids = [id for one in SYMBOLS if (id := new.token_id(one)) is not None]
        assert [new.bytes_of(id).decode() for id in ids] == SYMBOLS
        for line, row in zip(marked, new.encode(marked), strict=True):
            for one, id in zip(SYMBOLS, ids, strict=True):
                assert row.count(id) == line.count(one), line
        rows = zip(marked, new.encode(marked), strict=True)
        is_code = ">>" if extended.languages is None else "no code"  # at the start of lines for a Marian
        known = [line for line, row in rows if 3 not in row and not line.startswith(is_code)]
        assert new.decode(new.encode(known)) == known and len(known) > 20
        assert Tokenizer.from_json(new.to_json()).encode(marked) == new.encode(marked)
        assert extend_vocabulary(new, SYMBOLS).to_json() == new.to_json(), "known symbols are skipped"


def test_pieces_are_those_of_sentencepiece(extended: Extended) -> None:
    lines = [*with_symbols(sentences()[:300]), *odd_lines(200)]
    for side in sides(extended.new):
        assert side.pieces is not None
        model = sentencepiece.SentencePieceProcessor(model_proto=side.pieces.raw)
        lines = [line for line in lines if not line.startswith((">>", *side.config.symbols))]
        assert side.pieces.encode_pieces(lines) == model.encode(lines)


def test_new_rows_are_means_and_nothing_else_changes(extended: Extended) -> None:
    old, new = (run.model.state_dict() for run in (extended.old, extended.new))
    for name, tensor in new.items():
        is_row = "words" in name or name.startswith("output.")
        if not is_row:
            assert torch.equal(tensor, old[name]), name
            continue
        src, tgt = zip(sides(extended.old), sides(extended.new), strict=True)
        tied = extended.old.config.model.tie_embeddings == "all"
        before, after = tgt if tied or not name.startswith("encoder.") else src
        assert before.pieces is not None
        n_named = before.n_words - ("<mask>" in before.names)
        torch.testing.assert_close(tensor[:n_named], old[name][:n_named], rtol=0, atol=1e-12)
        for symbol in SYMBOLS:
            expected = old[name][before.pieces.encode([symbol], [False])[0]].mean(0)
            torch.testing.assert_close(tensor[after.token_id(symbol)], expected)


@pytest.mark.sample(2)
def test_engines_agree_and_say_what_was_said(extended: Extended) -> None:
    plain = [line for line in sentences()[:60] if not any(one in line for one in SYMBOLS)]
    marked = with_symbols(sentences()[60:90])
    settings: dict[str, Any] = {"beam_size": 4, "max_length": 20}
    texts = [
        load_translator([extended.path], engine=engine, checkpoint="last").translate([*plain, *marked], **settings)
        for engine in ("compiled", "torch")
    ]
    assert texts[0] == texts[1] and len(set(texts[0])) > 8
    pairs = list(zip(plain[:10], marked[:10], strict=True))
    run = extended.new
    scores = [score.log_prob for score in score_pairs(run, run.model, torch.device("cpu"), pairs)]
    assert np.isfinite(scores).all() and len(set(scores)) == 10


def their_tokenizer(extended: Extended, folder: Path) -> Any:
    names = {"m2m100": "M2M100Tokenizer", "mbart": "MBart50Tokenizer"}
    if extended.name in names:
        return getattr(transformers, names[extended.name]).from_pretrained(folder, **extended.options)
    return tokenizer_of(folder)


def check_in_transformers(extended: Extended, run: LoadedRun, lines: list[str], tmp_path: Path) -> None:
    """Compare ids, decoded text and logits of an exported run, and ids of one that is imported again."""
    folder = export_huggingface(run.path, tmp_path / "hub", checkpoint="last").path
    theirs, tokenizer = (
        transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval(),
        their_tokenizer(extended, folder),
    )
    orders = []
    order: Any
    for number, side in enumerate(sides(run)):
        assert side.pieces is not None
        orders.append(order := torch.tensor(side.pieces.order))
        for line, ids in zip(lines, side.encode(lines), strict=True):
            found = (tokenizer(text_target=line) if number else tokenizer(line)).input_ids
            is_nllb = extended.name == "nllb" and number == 1  # its tokenizer has the code of the source alone
            assert found[is_nllb:] == order[[*ids, 2]].tolist()[is_nllb:], line
            if number == 1 and 3 not in ids and (extended.languages is not None or not line.startswith(">>")):
                assert tokenizer.decode(found, skip_special_tokens=True) == line
    src, tgt = (list(side.encode(lines)[7]) for side in sides(run))
    first = 1 if extended.name == "marian" else 2
    model = run.model
    with torch.no_grad():
        ours = model.head(model.hidden(torch.tensor([[*src, 2]]), None, torch.tensor([[1, *tgt]])))[0]
        inputs = {"input_ids": orders[0][[*src, 2]][None], "decoder_input_ids": orders[1][[first, *tgt]][None]}
        torch.testing.assert_close(ours[:, 2:], theirs(**inputs).logits[0][:, orders[1][2:]], rtol=0, atol=1e-4)
    again = load_run(import_huggingface(folder, tmp_path / "again", **extended.options).path, device="cpu")
    for order, before, after in zip(orders, sides(run), sides(again), strict=True):
        assert after.pieces is not None
        for own, other in zip(before.encode(lines), after.encode(lines), strict=True):
            # A new code such as >>nld<< is imported as one, with another id of ours.
            assert order[own].tolist() == [after.pieces.order[id] for id in other]


def test_transformers_gives_the_same_ids_and_logits(extended: Extended, tmp_path: Path) -> None:
    lines = [*with_symbols(sentences()[:200]), *sentences()[:50]]
    check_in_transformers(extended, extended.new, lines, tmp_path)


def test_ctranslate2_says_the_same(extended: Extended, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    folder = export_ctranslate2(extended.path, tmp_path / "ct2", checkpoint="last").path
    lines = with_symbols(sentences()[:40])
    lines = [line for line in lines if not line.startswith(">>")]
    src, tgt = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm")) for side in ("source", "target")
    )
    codes = [] if extended.languages is None else [side.pieces.code for side in sides(extended.new) if side.pieces]
    results = ctranslate2.Translator(str(folder), compute_type="float32").translate_batch(
        [[*codes[:1], *src.encode(line, out_type=str)] for line in lines],
        target_prefix=[codes[1:]] * len(lines) if codes else None,
        beam_size=1,
        max_decoding_length=20,
        min_decoding_length=0,
    )
    is_code = {*sides(extended.new)[1].language_codes}
    rows = [[piece for piece in result.hypotheses[0] if piece not in is_code] for result in results]
    expected = [tgt.decode_pieces(row).replace("▁", " ").strip() for row in rows]
    found = load_translator([extended.path], checkpoint="last").translate(lines, beam_size=1, max_length=20)
    pairs = {pair for pair in zip(found, expected, strict=True) if "⁇" not in pair[1]}
    assert all(ours.strip() == theirs for ours, theirs in pairs) and len(pairs) > 3


def test_the_readme_translates(extended: Extended, tmp_path: Path) -> None:
    if extended.languages is None:
        return  # generate of transformers ends the sentences of a Marian by a rule of its own
    folder = export_huggingface(extended.path, tmp_path / "hub", checkpoint="last").path
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    (line,) = with_symbols(sentences()[3:4])
    changed = {'"."': repr(str(folder)), "num_beams=5": "num_beams=1", "A dog runs.": line}
    for old, new in changed.items():
        assert old in code
        code = code.replace(old, new)
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(code, found)
    longest = found["ids"].shape[1] - 1
    expected = load_translator([extended.path], checkpoint="last").translate([line], beam_size=1, max_length=longest)
    assert found["tokenizer"].batch_decode(found["ids"], skip_special_tokens=True) == expected


def test_marian_gets_the_symbols(extended: Extended, tmp_path: Path) -> None:
    config = extended.new.config.model
    if config.kind != "transformer" or config.decoder_start != "zero" or config.activation == "gelu":
        return  # not of Marian
    folder = export_marian(extended.path, tmp_path / "marian", checkpoint="last").path
    for path in folder.glob("vocab*.yml"):
        entries = [json.loads(line.rpartition(": ")[0]) for line in path.read_text().splitlines()]
        assert entries[-5:] == SYMBOLS
    assert np.load(folder / "model.npz")["decoder_ff_logit_out_b"].shape == (1, len(entries))


def test_training_goes_on(extended: Extended) -> None:
    """A run of its own, and adapters, begin from a run with symbols, which is not extended again."""
    whole = load_run(extended.train("next", extended.path, {}), device="cpu", checkpoint="last")
    assert whole.vocabularies == extended.new.vocabularies
    run = extended.place / "resumed"
    shutil.copytree(extended.path, run)
    shutil.rmtree(run / "data")
    more = ["finetuning.freeze=[output]", "limits.max_steps=2"]
    extended.train("resumed", extended.place / "run", {"extension.symbols": SYMBOLS}, more)
    resumed = load_run(run, device="cpu", checkpoint="last")
    assert resumed.checkpoint == "step-2" and resumed.vocabularies == extended.new.vocabularies
    run = extended.train("adapted", extended.path, {}, ["adapter.kind=lora"])
    lines = with_symbols(sentences()[:5])
    texts = [load_translator([path], checkpoint="last").translate(lines) for path in (run, extended.path)]
    assert texts[0] == texts[1], "adapters are zero at first"


def test_a_marian_learns_a_language_with_a_tag(extended: Extended) -> None:
    if extended.name != "marian":
        return
    directions = {"extension.symbols": ["<2nl>"], "data.directions": ["en:nl"]}
    path = extended.train("tagged", extended.place / "run", directions)
    run = load_run(path, device="cpu", checkpoint="last")
    assert run.config.language_options == ("--tgt-lang", "nl")
    translator = attnkit.Translator.load(path, tgt_lang="nl", device="cpu", threads=1)
    texts = translator.translate_texts(sentences()[:10])
    expected = load_translator([path]).translate(sentences()[:10])  # the only direction has this tag
    assert [hypotheses[0] for hypotheses in texts] == expected
    assert run.src_tokenizer.tokens(run.src_tokenizer.encode(["<2nl> ba"])[0]) == ["▁", "<2nl>", "▁ba"]


def test_what_is_no_symbol(extended: Extended, tmp_path: Path) -> None:
    tokenizer = extended.new.src_tokenizer
    refused = {
        ("▁a",): "contains '▁', which is a space in the vocabulary",
        ("a①",): "replaces characters of the symbol 'a①' before text is encoded",
        (tokenizer.pieces.roles["unk"],): "special entry",  # type: ignore[union-attr]
        ("x" * 2000,): "the entries cannot be added: a piece is empty or has more than 1,024 bytes",
    }
    for symbols, reason in refused.items():
        with pytest.raises((UsageError, ValueError), match=reason) as caught:
            extend_vocabulary(tokenizer, [str(symbol) for symbol in symbols])
        assert isinstance(caught.value, UsageError) == (symbols != ("<unk>",))
    if extended.name in ("marian", "mbart"):  # unigram models take the symbols with the best score in total
        with pytest.raises(UsageError, match="'<b></b>' consists of other symbols"):
            extend_vocabulary(tokenizer, ["<b></b>"])
    else:
        (row,) = extend_vocabulary(tokenizer, ["<b></b>"]).encode(["ba<b></b><b>"])
        assert len(row) == 4 + (extended.languages is not None) - 1
    for code in tokenizer.config.symbols[:2]:
        assert extend_vocabulary(tokenizer, [code]) is tokenizer, "a language code is known"


def test_a_piece_may_become_a_symbol(extended: Extended) -> None:
    """What was a part of other pieces is a token of its own, with the row that it had."""
    old = extended.old.src_tokenizer
    new = extend_vocabulary(old, ["ing"])
    assert old.pieces is not None and new.pieces is not None
    (id,) = old.pieces.encode(["ing"], [False])[0]
    assert new.token_id("ing") == id and new.vocab_size == old.vocab_size and old.token_id("ing") is None
    for line, row in zip(sentences()[:200], new.encode(sentences()[:200]), strict=True):
        assert row.count(id) == line.count("ing"), line


GEORGIAN = ["ბა ბე ლოdada ungung baloba", "ბა ლო schung dada balobaba ungung", "ბეbe lolo ბალო"] * 10


def ends_of(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """Return where each token ends, in characters."""
    return np.cumsum([len(name) for name in tokenizer.tokens(ids)]).tolist()


def test_pieces_of_another_language_are_added(extended: Extended, tmp_path: Path) -> None:
    text = extended.place / "new.ka"
    text.write_text("".join(f"{line}\n" for line in GEORGIAN))
    flags = {"extension.files": [str(text)], "extension.entries": 20, "extension.symbols": ["<ka>"]}
    freeze = ["finetuning.freeze=[output]"]
    if not extended.old.config.joint_vocabulary:
        with pytest.raises(UsageError, match=r"extension.files needs a joint vocabulary"):
            extended.train("refused", extended.place / "run", flags, freeze)
        return
    run = load_run(extended.train("ka", extended.place / "run", flags, freeze), device="cpu", checkpoint="last")
    before, after = zip(*(side.names for side in sides(run)), strict=True), sides(run)
    assert all(one == other for one, other in before), "both sides have one list of names"
    for old, new in zip(sides(extended.old), after, strict=True):
        assert old.pieces is not None and new.pieces is not None
        assert 15 < len(new.pieces.vocabulary) - len(old.pieces.vocabulary) <= 21
        rows = new.encode(GEORGIAN)
        assert sum(map(len, rows)) < 0.6 * sum(map(len, old.encode(GEORGIAN))) and new.decode(rows) == GEORGIAN
        model = sentencepiece.SentencePieceProcessor(model_proto=new.pieces.raw)
        lines = [*GEORGIAN, *sentences()[:300], *odd_lines(200)]
        assert new.pieces.encode_pieces(lines) == model.encode(lines)
        n_equal = 0
        for ids, same in zip(old.encode(sentences()), new.encode(sentences()), strict=True):
            assert set(ends_of(new, same)) <= set(ends_of(old, ids)), "pieces are joined, never cut in another way"
            n_equal += old.tokens(ids) == new.tokens(same)
        assert n_equal > 550
        name = "▁schung"
        (old_ids,), (new_ids,) = old.pieces.encode_normalized([name]), new.pieces.encode_normalized([name])
        assert len(old_ids) > 1 == len(new_ids)
        if new is after[1]:
            expected = extended.old.model.state_dict()["output.weight"][old_ids].mean(0)
            torch.testing.assert_close(run.model.state_dict()["output.weight"][new_ids[0]], expected)
    check_in_transformers(extended, run, [*GEORGIAN[:3], "<ka> ბა", *with_symbols(sentences()[:30])], tmp_path)
