"""An imported Marian computes, searches, learns and cuts text as it did in transformers, and goes back unchanged."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import numpy as np
import safetensors.torch
import torch
import transformers
from hub_runs import check_refusal
from translators import SHAPES, marian_folder, sentences, three_steps, tokenizer_of

from attnkit.conversion import import_translator
from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Sources, search
from attnkit.engine.resolve import inherited, resolve
from attnkit.engine.seq2seq import pad_sources
from attnkit.errors import AttnkitError, RunError
from attnkit.formats.huggingface import weights
from attnkit.models.transformer import MASKED
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.tasks.translation.score import score_pairs
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.tasks.translation.translator import load_translator

ODD = [
    "",
    " ",
    "  ba  be ",
    "ba\tbe",
    "e\u0301 ﬁ ① Ｈ\u0611",
    "🌱🌱 日本",
    "مرحبا",
    "a\u00adb \u200b",
    ">>fr<< ba",
    ">>xx<<ba be",
]
ODD += ["ba >>fr<< be", "▁ba ▁", "x" * 200, "1950 5K (7)", "don’t “quote”", "\ufeffbo"]


class Imported:
    """A folder of transformers, its model, and the run made of it."""

    def __init__(self, place: Path, **changes: Any) -> None:
        self.folder = place / "hub"
        self.theirs = marian_folder(self.folder, **changes)
        self.result = import_huggingface(self.folder, place / "run")
        self.run: LoadedRun = load_run(self.result.path, device="cpu")
        src, tgt = self.run.src_tokenizer.pieces, self.run.tgt_tokenizer.pieces
        assert src is not None and tgt is not None
        self.orders = torch.tensor(src.order), torch.tensor(tgt.order)
        self.pad = self.theirs.config.pad_token_id


@pytest.fixture(scope="module", params=SHAPES)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return Imported(tmp_path_factory.mktemp("marian"), **SHAPES[request.param])


def masked(model: Any) -> Any:
    """Take the logit of padding from a model of transformers, as Marian itself has none."""
    with torch.no_grad():
        model.final_logits_bias[0, model.config.pad_token_id] = MASKED
    return model


def test_logits_are_equal(imported: Imported) -> None:
    check_logits(imported)


def check_logits(imported: Imported, n: int = 20) -> None:
    source, run = random.Random(1), imported.run
    for _ in range(n):
        src = [source.randrange(4, run.src_tokenizer.vocab_size) for _ in range(source.randint(1, 30))]
        tgt = [source.randrange(2, run.tgt_tokenizer.vocab_size) for _ in range(source.randint(0, 30))]
        with torch.no_grad():
            ours = run.model.head(run.model.hidden(torch.tensor([[*src, 2]]), None, torch.tensor([[1, *tgt]])))[0]
            ids = {
                "input_ids": imported.orders[0][[*src, 2]][None],
                "decoder_input_ids": imported.orders[1][[1, *tgt]][None],
            }
            theirs = imported.theirs(**ids).logits[0]
        torch.testing.assert_close(ours[:, 2:], theirs[:, imported.orders[1][2:]], rtol=0, atol=1e-4)
        assert (ours[:, :2] < -1e8).all(), "BOS and padding have no logits"
        assert float(theirs.std()) > 0.3, "the weights say nothing"


@pytest.mark.sample(3)
def test_three_hundred_beams_are_equal(imported: Imported) -> None:
    assert len(found_by_beams(imported, 25)) > 4, "the sentences are alike"


def found_by_beams(imported: Imported, longest: int) -> set[int]:
    """Search 300 sentences in both, compare the ids, and return their numbers."""
    run, theirs = imported.run, masked(transformers.MarianMTModel.from_pretrained(imported.folder).eval())
    rows, lengths = run.src_tokenizer.encode(sentences()[:300]), set()
    for first in range(0, 300, 100):
        src, real = pad_sources(rows[first : first + 100], torch.device("cpu"))
        assert real is not None
        found = search([run.model], Sources(src, real), SearchConfig(beam_size=4, max_length=longest))
        ids = torch.where(real, imported.orders[0][src], imported.pad)
        settings = {"num_beams": 4, "max_length": longest + 1, "early_stopping": True, "forced_eos_token_id": None}
        expected = theirs.generate(input_ids=ids, attention_mask=real.long(), **settings)
        for hypotheses, row in zip(found, expected.tolist(), strict=True):
            ours = imported.orders[1][hypotheses[0].ids].tolist() + [0] * hypotheses[0].finished
            assert ours == [id for id in row[1:] if id != imported.pad]
            lengths.add(len(ours))
    return lengths


def test_text_is_cut_and_joined_as_in_transformers(imported: Imported) -> None:
    theirs = tokenizer_of(imported.folder)
    lines = ODD + sentences()[:200]
    for tokenizer, order, options in (
        (imported.run.src_tokenizer, imported.orders[0], {}),
        (imported.run.tgt_tokenizer, imported.orders[1], {"text_target": ""}),
    ):
        for line, ids in zip(lines, tokenizer.encode(lines), strict=True):
            found = theirs(text_target=line) if options else theirs(line)
            assert order[ids].tolist() == found.input_ids[:-1], ascii(line)
            if 3 not in ids and ids and options:
                assert tokenizer.decode([ids])[0].strip() == theirs.decode(found.input_ids, skip_special_tokens=True)


def test_three_steps_of_training_are_equal(imported: Imported) -> None:
    theirs = masked(transformers.MarianMTModel.from_pretrained(imported.folder)).train()
    # In transformers, the bias is a buffer, which Marian trains.
    bias = theirs.final_logits_bias = torch.nn.Parameter(theirs.final_logits_bias.clone())
    ours = load_trainable(imported)
    rows = [tokenizer.encode(sentences()) for tokenizer in (imported.run.src_tokenizer, imported.run.tgt_tokenizer)]
    losses = three_steps(ours, theirs, rows, imported.orders, imported.pad)
    assert np.allclose(*zip(*losses, strict=True), rtol=0, atol=1e-5), losses
    assert losses[2][0] < losses[0][0] - 0.01, "nothing was learned"
    table = ours.decoder.embedding.words.weight
    assert not table[:2].any() and (ours.output.bias[:2] == MASKED).all()
    assert float((bias[0, imported.orders[1][2:]] - ours.output.bias[2:]).detach().abs().max()) < 1e-3


def load_trainable(imported: Imported) -> Any:
    """Return the imported model as it is trained; what ``load_run`` returns is packed."""
    from attnkit.models.transformer import Transformer

    config = imported.run.config.model
    assert config.kind == "transformer"
    model = Transformer(config, imported.run.src_tokenizer.vocab_size, imported.run.tgt_tokenizer.vocab_size)
    model.load_state_dict(imported.run.model.state_dict())
    return model.train()


def test_everything_goes_back(imported: Imported, tmp_path: Path) -> None:
    export_huggingface(imported.result.path, tmp_path / "back")
    ours, theirs = (
        safetensors.torch.load_file(at / "model.safetensors") for at in (tmp_path / "back", imported.folder)
    )
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "back" / name).read_bytes() == (imported.folder / name).read_bytes()
    for path in imported.folder.glob("*vocab.json"):
        assert json.loads((tmp_path / "back" / path.name).read_text()) == json.loads(path.read_text())
    again = tokenizer_of(tmp_path / "back")
    assert again("ba be").input_ids == tokenizer_of(imported.folder)("ba be").input_ids
    kept, given = transformers.MarianConfig.from_pretrained(tmp_path / "back"), imported.theirs.config
    for key in ("pad_token_id", "eos_token_id", "decoder_start_token_id", "vocab_size", "encoder_layers", "d_model"):
        assert getattr(kept, key) == getattr(given, key)
    run = import_huggingface(tmp_path / "back", tmp_path / "run").path
    lines = sentences()[:20]
    assert load_translator([run]).translate(lines) == load_translator([imported.result.path]).translate(lines)


def test_engines_and_ctranslate2_agree(imported: Imported, tmp_path: Path) -> None:
    ctranslate2, sentencepiece = pytest.importorskip("ctranslate2"), pytest.importorskip("sentencepiece")
    folder, lines = export_ctranslate2(imported.result.path, tmp_path / "ct2").path, sentences()[:60]
    src, tgt = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm")) for side in ("source", "target")
    )
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    tokens = [src.encode(line, out_type=str) for line in lines]
    results = translator.translate_batch(
        tokens, beam_size=4, length_penalty=1, max_decoding_length=25, min_decoding_length=0
    )
    expected = [tgt.decode_pieces(result.hypotheses[0]).replace("▁", " ").strip() for result in results]
    settings: dict[str, Any] = {"beam_size": 4, "length_penalty": 1.0, "max_length": 25}
    for engine in ("compiled", "torch"):
        found = load_translator([imported.result.path], engine=engine).translate(lines, **settings)
        # For an unknown word, sentencepiece has another sign.
        pairs = {pair for pair in zip(found, expected, strict=True) if "⁇" not in pair[1]}
        assert all(ours == theirs for ours, theirs in pairs), engine
        assert len(pairs) > 15


def test_pairs_are_scored_as_in_transformers(imported: Imported) -> None:
    theirs, run = masked(transformers.MarianMTModel.from_pretrained(imported.folder).eval()), imported.run
    pairs = list(zip(sentences()[:10], sentences()[10:20], strict=True))
    scores = list(score_pairs(run, run.model, torch.device("cpu"), pairs))
    for (src, tgt), score in zip(pairs, scores, strict=True):
        labels = imported.orders[1][[*run.tgt_tokenizer.encode([tgt])[0], 2]][None]
        ids = imported.orders[0][[*run.src_tokenizer.encode([src])[0], 2]][None]
        with torch.no_grad():
            expected = -float(theirs(input_ids=ids, labels=labels).loss) * labels.shape[1]
        assert score.log_prob == pytest.approx(expected, abs=1e-3)


def test_a_run_goes_on_with_other_text(tmp_path: Path) -> None:
    imported = Imported(tmp_path)
    for side, lines in (("a", sentences()[:200]), ("b", sentences()[200:400])):
        (tmp_path / side).write_text("".join(line + "\n" for line in lines))
    flags = {"data.src": [str(tmp_path / "a")], "data.tgt": [str(tmp_path / "b")]}
    sets = ["limits.max_steps=3", "optimization.batch_tokens=400", "optimization.warmup_steps=1", "data.held_out=5"]
    sets += ["optimization.learning_rate=1e-3", "optimization.schedule=constant", "optimization.label_smoothing=0.1"]
    resolved = resolve(flags, sets=sets, preset_name="tiny", fixed=inherited(imported.result.path, tmp_path / "other"))
    for _ in train(TrainRequest(resolved.config, tmp_path / "other", init_from=imported.result.path)):
        pass
    tuned = load_run(tmp_path / "other", device="cpu", checkpoint="last")
    assert tuned.src_tokenizer.fingerprint == imported.run.src_tokenizer.fingerprint
    before, after = imported.run.model.state_dict(), tuned.model.state_dict()
    assert not torch.equal(before["output.bias"], after["output.bias"]), "the bias was not trained"
    assert not after["decoder.embedding.words.weight"][:2].any() and (after["output.bias"][:2] == MASKED).all()
    assert float((after["output.bias"][2:] - before["output.bias"][2:]).abs().max()) < 0.1


def test_a_start_that_is_not_zero_is_told(tmp_path: Path) -> None:
    marian_folder(tmp_path / "hub")
    tensors = safetensors.torch.load_file(tmp_path / "hub" / "model.safetensors")
    tensors["model.shared.weight"][-1, 0] = 3.0
    safetensors.torch.save_file(tensors, tmp_path / "hub" / "model.safetensors", {"format": "pt"})
    (warning,) = import_huggingface(tmp_path / "hub", tmp_path / "run").warnings
    assert warning.startswith("the vector from which the decoder starts is zero now; it had a norm of 3")


@pytest.mark.parametrize("archive", [True, False])
def test_old_files_of_weights_give_the_same_run(archive: bool, tmp_path: Path) -> None:
    """Many of OPUS-MT have ``pytorch_model.bin`` alone, with half precision, copies of tied weights and sinusoids."""
    theirs = marian_folder(tmp_path / "hub")
    expected = import_huggingface(tmp_path / "hub", tmp_path / "run").path
    (tmp_path / "hub" / "model.safetensors").unlink()
    state = theirs.state_dict()
    assert {
        "lm_head.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_positions.weight",
    } <= state.keys()
    torch.save(state, tmp_path / "hub" / "pytorch_model.bin", _use_new_zipfile_serialization=archive)
    again = import_huggingface(tmp_path / "hub", tmp_path / "again").path
    ours, same = (load_run(run, device="cpu").model.state_dict() for run in (expected, again))
    assert all(torch.equal(ours[name], same[name]) for name in ours)
    torch.save({name: tensor.half() for name, tensor in state.items()}, tmp_path / "hub" / "pytorch_model.bin")
    half = load_run(import_huggingface(tmp_path / "hub", tmp_path / "half").path, device="cpu").model.state_dict()
    assert all(torch.equal(half[name], ours[name].half().float()) for name in ours if name != "output.bias")


@pytest.mark.parametrize("kind", ["safetensors", "half", "transposed"])
def test_words_are_read_in_parts(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vectors of all words are never in memory, unless they do not lie row by row."""
    theirs = marian_folder(tmp_path / "hub")
    state = theirs.state_dict()
    if kind != "safetensors":
        (tmp_path / "hub" / "model.safetensors").unlink()
        table = state["model.shared.weight"]
        state["model.shared.weight"] = table.half() if kind == "half" else table.t().contiguous().t()
        torch.save(state, tmp_path / "hub" / "pytorch_model.bin")
    expected = load_run(import_huggingface(tmp_path / "hub", tmp_path / "run").path, device="cpu").model.state_dict()
    whole: list[str] = []
    parts: list[int] = []
    read, read_rows = weights.TensorFile.read, weights.TensorFile.read_rows
    monkeypatch.setattr(weights.TensorFile, "read", lambda file, name: [read(file, name), whole.append(name)][0])
    monkeypatch.setattr(
        weights.TensorFile,
        "read_rows",
        lambda file, name, rows: [read_rows(file, name, rows), parts.append(len(rows))][0],
    )
    monkeypatch.setattr(import_translator, "_ROWS", 50)
    again = load_run(import_huggingface(tmp_path / "hub", tmp_path / "again").path, device="cpu").model.state_dict()
    assert all(torch.equal(expected[name], again[name]) for name in expected)
    assert max(parts) == 50 and sum(parts) > len(state["final_logits_bias"][0])
    assert ("model.shared.weight" in whole) == (kind == "transposed") and "model.encoder.layers.0.fc1.weight" in whole


def edit(name: str, **changes: Any) -> Any:
    def apply(folder: Path) -> None:
        tree = json.loads((folder / name).read_text())
        tree = {key: value for key, value in {**tree, **changes}.items() if value is not ...}
        (folder / name).write_text(json.dumps(tree))

    return apply


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch unpickled",)


def evil(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"a": Evil()}, folder / "pytorch_model.bin")


def shared(folder: Path) -> None:
    """Let all weights of a shape be the same part of the file."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    kept: dict[Any, torch.Tensor] = {}
    state = {name: kept.setdefault(tuple(tensor.shape), tensor) for name, tensor in tensors.items()}
    torch.save(state, folder / "pytorch_model.bin")


REFUSED: dict[str, tuple[Any, str]] = {
    "code": (edit("config.json", auto_map={"AutoModel": "evil.Model"}), "the model is code of the folder .auto_map."),
    "code of the tokenizer": (
        edit("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]}),
        "the tokenizer is code of the folder .auto_map.",
    ),
    "t5": (edit("config.json", model_type="bart"), "unsupported model_type 'bart'"),
    "unscaled": (edit("config.json", scale_embedding=False), "unsupported scale_embedding False for marian"),
    "pre-norm": (edit("config.json", normalize_before=True), "unsupported normalize_before True for marian"),
    "other heads": (edit("config.json", decoder_attention_heads=2), "unsupported decoder_attention_heads 2"),
    "an odd activation": (edit("config.json", activation_function="mish"), "unsupported activation_function mish"),
    "absurd": (edit("config.json", d_model=10**9), "d_model: Input should be less than or equal to 65536"),
    "another width": (edit("config.json", d_model=64), "has shape \\[.*\\], but config.json implies"),
    "another start": (edit("config.json", decoder_start_token_id=0), "starts from neither padding nor|tokenizer"),
    "no file": (lambda folder: (folder / "target.spm").unlink(), "no target.spm in"),
    "no spm": (lambda folder: (folder / "source.spm").write_bytes(b"\x0b"), "not a SentencePiece model"),
    "a damaged vocabulary": (
        edit("vocab.json", **{"</s>": "one"}),
        "eos_token_id 0 of config.json is not in vocab.json",
    ),
    "two of one id": (edit("vocab.json", **{"<unk>": 5}), "or two have the same"),
    "an evil pickle": (evil, "names (posix|nt).system, which no state dict of tensors needs"),
    "tensors that share the file": (shared, "different weights share parts of the file"),
    "another weight": (edit("config.json", encoder_layers=1), "unexpected weight 'model.encoder.layers.1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_strange_folder_is_refused(name: str, tmp_path: Path) -> None:
    change, reason = REFUSED[name]
    marian_folder(tmp_path / "hub")
    change(tmp_path / "hub")
    with pytest.raises(RunError, match=reason) as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    check_refusal(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("odd", "what", "help"),
    [
        ({"model_type": "bart"}, "unsupported model_type 'bart'", "supported: bert, "),
        ({"normalize_before": True}, "unsupported normalize_before True for marian", "supported: False; model types: "),
        ({"d_model": -1}, "the model cannot be imported: d_model: ", "model types: bert, "),
        ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map", "of transformers; model types: bert, "),
        ({"model_type": "bert", "is_decoder": True}, "unsupported is_decoder True", "False; model types: bert, "),
    ],
    ids=lambda case: str(case)[:30],
)
def test_a_refusal_names_all_types(tmp_path: Path, odd: dict[str, Any], what: str, help: str) -> None:
    marian_folder(tmp_path / "hub")
    edit("config.json", **odd)(tmp_path / "hub")
    with pytest.raises(AttnkitError) as caught:
        import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert what in caught.value.what and help in str(caught.value.help)
    named = re.split(r"[:;,] ", str(caught.value.help))
    assert {"bert", "roberta", "roformer", "gpt2", "marian", "m2m_100", "mbart"} <= set(named) and "bart" not in named


@pytest.mark.parametrize("sets", [[], ["joint_vocabulary=false", "model.tie_embeddings=target"]], ids=["joint", "two"])
def test_our_own_export_comes_back(
    sets: list[str], digits: Path, train_on_digits: Callable[[Path, list[str]], Path], tmp_path: Path
) -> None:
    run = train_on_digits(
        tmp_path / "run", ["limits.max_steps=30", "vocabulary.kind=bpe", "vocabulary.size=300", *sets]
    )
    folder = export_huggingface(run, tmp_path / "hub").path
    again = import_huggingface(folder, tmp_path / "again").path
    lines = (digits / "test.src").read_text().splitlines()[:100]
    expected = load_translator([run], checkpoint="best").translate(lines)
    assert load_translator([again]).translate(lines) == expected and len(set(expected)) > 3
    ours, same = (load_run(at, device="cpu").model.state_dict() for at in (run, again))
    assert all(torch.equal(ours[name], same[name]) for name in ours)
