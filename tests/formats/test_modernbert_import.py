"""ModernBERT: every layer, every head and every form of its configuration, as transformers has them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import safetensors.torch
import torch
import transformers
from hub_encoders import modernbert, odd_lines, rewrite
from hub_runs import check_refusal

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import tensors_of
from attnkit.compiled.encoder import CompiledEncoder
from attnkit.compiled.packed_language_model import PackedLanguageModel
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.compiled_language_models import set_precision
from attnkit.engine.loading import load_model
from attnkit.engine.resolve import init_layer, resolve
from attnkit.engine.trainer import TrainRequest, train
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.kernels.jit import is_available
from attnkit.models.layers import PackedLayout
from attnkit.text.tokenizer import Tokenizer

NEAR: dict[str, Any] = {"rtol": 0, "atol": 1e-4}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modern") / "hub"
    modernbert(folder)
    return folder


def tokenizer_of(run: Path) -> Tokenizer:
    return read_tokenizer(RunFolder(run).checkpoint()[0])


def order_of(run: Path) -> torch.Tensor:
    origin = tokenizer_of(run).origin
    assert origin is not None
    return torch.tensor([-1 if id is None else id for id in origin.order])


@pytest.mark.parametrize("shape", range(3))
def test_every_layer_has_the_same_features(shape: int, tmp_path: Path) -> None:
    """With padding, and in rows of 50 tokens of which a local layer sees 9 or 13."""
    theirs = modernbert(tmp_path / "hub", shape)
    run = load_model(import_huggingface(tmp_path / "hub", tmp_path / "run").path, "mlm", device="cpu")
    ids = torch.randint(40, 400, (3, 50), generator=torch.Generator().manual_seed(shape))
    real = torch.arange(50) < torch.tensor([[50], [20], [2]])
    given = {"input_ids": order_of(tmp_path / "run")[ids], "attention_mask": real.long()}
    with torch.no_grad():
        expected = theirs.model(**given, output_hidden_states=True)
        n_layers = theirs.config.num_hidden_layers
        for layer in range(n_layers):
            found = run.model.hidden(ids, PackedLayout.padded(real), layers=layer)
            torch.testing.assert_close(found[real], expected.hidden_states[layer][real], **NEAR)
        last = run.model.hidden(ids, PackedLayout.padded(real))
        torch.testing.assert_close(last[real], expected.last_hidden_state[real], **NEAR)
    types = ["sliding_attention" if local else "full_attention" for local in run.model.is_local]
    assert types == theirs.config.layer_types and len(set(types)) == 2
    assert run.model.local_attention.rope_base == theirs.config.rope_parameters["sliding_attention"]["rope_theta"]


HEADS = {
    "SequenceClassification": ("text-classification", {"num_labels": 3}),
    "SequenceClassification of a mean": ("text-classification", {"num_labels": 3, "classifier_pooling": "mean"}),
    "TokenClassification": ("token-classification", {"num_labels": 4}),
    "QuestionAnswering": ("question-answering", {}),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("shape", [0, 2])
def test_what_was_fine_tuned_there_predicts_here_and_comes_back(name: str, shape: int, tmp_path: Path) -> None:
    task, changes = HEADS[name]
    kind = getattr(transformers, f"ModernBertFor{name.split()[0]}")
    theirs = modernbert(tmp_path / "hub", shape, kind, **changes)
    done = import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert done.warnings == () and done.command == "predict"
    model: Any = load_model(done.path, task, device="cpu").model
    ids = torch.randint(40, 400, (2, 30), generator=torch.Generator().manual_seed(shape))
    real = torch.arange(30) < torch.tensor([[30], [11]])
    with torch.no_grad():
        found = theirs(input_ids=order_of(done.path)[ids], attention_mask=real.long())
        if task == "question-answering":
            begins, ends = model(ids, real, None, real)
            torch.testing.assert_close(begins[real], found.start_logits[real], **NEAR)
            torch.testing.assert_close(ends[real], found.end_logits[real], **NEAR)
        else:
            kept = real if task == "token-classification" else slice(None)
            torch.testing.assert_close(model(ids, real)[kept], found.logits[kept], **NEAR)
            assert found.logits.std() > 0.1, "the weights say nothing"
    back = export_huggingface(done.path, tmp_path / "back").path
    was, now = (safetensors.torch.load((path / "model.safetensors").read_bytes()) for path in (tmp_path / "hub", back))
    assert was.keys() == now.keys() and all(torch.equal(was[name], now[name]) for name in was)
    again = kind.from_pretrained(back)
    assert again.config.classifier_pooling == theirs.config.classifier_pooling
    assert again.config.id2label == theirs.config.id2label


def test_classifiers_start_from_the_masked_lm_head(hub: Path, tmp_path: Path) -> None:
    """As in transformers, which has one name for both; and ``pooling`` may be chosen then."""
    run = import_huggingface(hub, tmp_path / "run").path
    lines = [f"{'ab'[i % 2]}\tthe {'fox' if i % 2 else 'dog'} {i}" for i in range(40)]
    (tmp_path / "in.tsv").write_text("\n".join(["label\ttext", *lines, ""]))
    sets = ["limits.max_steps=1", "optimization.learning_rate=1e-9", "device=cpu", "precision=float32", "threads=1"]
    flags = {"task": "text-classification", "data.files": [str(tmp_path / "in.tsv")]}
    config = resolve(flags, sets=[*sets, "model.pooling=mean"], fixed=init_layer(run)).config
    list(train(TrainRequest(config, tmp_path / "tuned", init_from=run)))
    tuned: Any = load_model(tmp_path / "tuned", "text-classification", device="cpu").model
    before = load_model(run, "mlm", device="cpu").model.predictor.state_dict()
    assert tuned.mean and tuned.pooler.state_dict().keys() == before.keys()
    for name, tensor in tuned.pooler.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=1e-6)


def test_text_comes_back_as_it_was(hub: Path, tmp_path: Path) -> None:
    """Runs of spaces are entries, as in GPT-NeoX, and characters are composed (NFC)."""
    tokenizer = tokenizer_of(import_huggingface(hub, tmp_path / "run").path)
    theirs = transformers.AutoTokenizer.from_pretrained(hub)
    lines = [" " * n + "x" + " " * (30 - n) + "|||EMAIL_ADDRESS||| y" for n in range(30)]
    lines += ["if x:    return  1", "e\u0301  a\u0323\u0307", "a [unused0]  b", "\t  tab  \t", "<|endoftext|>  a"]
    lines += [line for line in odd_lines(300) if not any(name in line for name in ("[CLS]", "[SEP]"))]
    rows, order = tokenizer.encode(lines), order_of(tmp_path / "run")
    for line, row, text in zip(lines, rows, tokenizer.decode(rows), strict=True):
        ids = theirs(line, add_special_tokens=False).input_ids
        assert order[row].tolist() == ids, ascii(line)
        assert text == tokenizer.normalize(line), ascii(line)
        assert text == theirs.decode(ids, clean_up_tokenization_spaces=False), ascii(line)
    assert sum("  " in line for line in lines) > 100


def test_older_keys_give_the_same_run(hub: Path, tmp_path: Path) -> None:
    """Those of the published files, which transformers 5 has replaced."""
    older = Path(shutil.copytree(hub, tmp_path / "older"))
    tree = json.loads((older / "config.json").read_text())
    assert tree["rope_parameters"]["full_attention"]["rope_theta"] == 160000.0
    for name in ("layer_types", "rope_parameters"):
        del tree[name]
    tree |= {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    tree |= {"position_embedding_type": "absolute", "layer_norm_eps": 1e-5, "reference_compile": None}
    (older / "config.json").write_text(json.dumps(tree))
    checkpoints = [
        RunFolder(import_huggingface(folder, tmp_path / f"run{i}").path).checkpoint()[0]
        for i, folder in enumerate((hub, older))
    ]
    new, old = (read_run_config(one, "mlm").model for one in checkpoints)
    assert new == old and (new.local_window, new.global_every) == (8, 3)
    assert (new.rope_base, new.local_rope_base, new.max_length) == (160000.0, 10000.0, 64)
    assert checkpoints[0].read("model.safetensors") == checkpoints[1].read("model.safetensors")


FULL, LOCAL = "full_attention", "sliding_attention"


def rope(**changes: Any) -> dict[str, Any]:
    return {"rope_parameters": {FULL: {"rope_type": "default", **changes}}}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a window of nothing": ({"local_attention": 0}, "local_attention: .* greater than or equal to 2"),
    "a negative window": ({"local_attention": -1}, "local_attention: .* greater than or equal to 2"),
    "an absurd window": ({"local_attention": 1 << 40}, "local_attention: .* less than or equal to"),
    "a window of text": ({"local_attention": "128"}, "local_attention: .* valid integer"),
    "a step of nothing": (
        {"layer_types": None, "global_attn_every_n_layers": 0},
        "global_attn_every_n_layers: .* greater than 0",
    ),
    "other layers": ({"layer_types": [FULL, FULL, LOCAL, FULL]}, "layer_types must be full_attention every n-th layer"),
    "a local layer first": ({"layer_types": [LOCAL, LOCAL, LOCAL, FULL]}, "layer_types must be full_attention every"),
    "too few layers": ({"layer_types": [FULL, LOCAL]}, "for each of 4 layers"),
    "too many layers": ({"layer_types": [FULL] * 5000}, "layer_types: List should have at most"),
    "layers of another type": ({"layer_types": [FULL, "linear", "linear", FULL]}, "layer_types must be"),
    "layers that are none": ({"layer_types": [FULL, 1, 2, FULL]}, "layer_types.1: .* valid string"),
    "an absurd number of layers": ({"num_hidden_layers": 1 << 40}, "num_hidden_layers: .* less than or equal to 256"),
    "a base of 0": (rope(rope_theta=0.0), "global_rope_theta: .* greater than 1"),
    "a huge base": (rope(rope_theta=1e300), "global_rope_theta: .* less than or equal to 1000000000"),
    "no base": (rope(rope_theta=None), "global_rope_theta: .* valid number"),
    "a base that is no number": (rope(rope_theta=float("nan")), "config.json"),
    "scaled positions": (rope(rope_type="yarn", factor=4.0), "positions are scaled .rope_type 'yarn'."),
    "scaled positions of old": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "positions are scaled"),
    "a base for both": ({"rope_scaling": {"rope_theta": 5.0}}, "positions are scaled"),
    "heads of another width": ({"head_dim": 16}, "head_dim 16 is not hidden_size / num_attention_heads"),
    "other bases": ({"rope_parameters": {"rope_theta": 1e4}}, "is not a mapping of mappings"),
    "bases of other layers": (
        {"rope_parameters": {"linear": {}}},
        "must have full_attention and sliding_attention only",
    ),
    "biases of a part": ({"mlp_bias": True}, "attention_bias and mlp_bias differ"),
    "no bias of the output": ({"decoder_bias": False}, "decoder_bias: Input should be True"),
    "another activation of the head": ({"classifier_activation": "relu"}, "classifier_activation must be that of"),
    "odd heads": ({"num_attention_heads": 32}, "even head width"),
    "biases that are missing": ({"attention_bias": True, "mlp_bias": True}, "the weights lack"),
    "another width": ({"intermediate_size": 65}, "has shape .32, 64., but config.json implies .32, 65."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_odd_about_a_configuration_is_said(name: str, hub: Path, tmp_path: Path) -> None:
    folder, (changes, said) = Path(shutil.copytree(hub, tmp_path / "hub")), REFUSED[name]
    rewrite(folder, **changes)
    with pytest.raises(RunError, match=said) as caught:
        import_huggingface(folder, tmp_path / "run")
    check_refusal(caught.value)
    assert max(map(len, caught.value.lines())) < 300
    assert not (tmp_path / "run").exists()


COARSE = [pytest.param("bfloat16", 0.9995, marks=pytest.mark.slow), ("int8", 0.998)]


@pytest.mark.skipif(not is_available(), reason="numba is not installed")
@pytest.mark.parametrize("shape", range(3))
def test_compiled_loops_have_the_features_of_transformers(shape: int, tmp_path: Path) -> None:
    """In float32, too, which commands leave to torch."""
    theirs = modernbert(tmp_path / "hub", shape)
    opened = load_model(import_huggingface(tmp_path / "hub", tmp_path / "run").path, "mlm", device="cpu")
    weights = {name: tensor.detach().numpy() for name, tensor in tensors_of(opened.model).items()}
    encoder = CompiledEncoder(PackedLanguageModel(opened.config.model, weights))
    ids = torch.randint(40, 400, (3, 50), generator=torch.Generator().manual_seed(shape))
    real = torch.arange(50) < torch.tensor([[50], [20], [2]])
    given = {"input_ids": order_of(tmp_path / "run")[ids], "attention_mask": real.long()}
    with torch.no_grad():
        expected = theirs.model(**given, output_hidden_states=True)
    for layer in range(theirs.config.num_hidden_layers):
        found = encoder.hidden(ids, real, layers=layer)
        torch.testing.assert_close(found[real], expected.hidden_states[layer][real], **NEAR)
    torch.testing.assert_close(encoder.hidden(ids, real)[real], expected.last_hidden_state[real], **NEAR)


@pytest.mark.skipif(not is_available(), reason="numba is not installed")
@pytest.mark.parametrize(("precision", "least"), COARSE)
def test_a_coarser_precision_is_near(precision: Any, least: float, hub: Path, tmp_path: Path) -> None:
    run = import_huggingface(hub, tmp_path / "run").path
    opened, notes = load_model(run, "mlm", device="cpu"), list[str]()
    ids = torch.randint(40, 400, (3, 50), generator=torch.Generator().manual_seed(1))
    layout = PackedLayout.unpacked(3)
    with torch.no_grad():
        expected = opened.model.hidden(ids, layout)
        set_precision(opened, precision, notes.append)
        found = opened.model.hidden(ids, layout)
    assert not [note for note in notes if "using torch" in note]
    similar = torch.nn.functional.cosine_similarity(found, expected, dim=-1)
    assert least < similar.min() < 1 - 1e-7, similar.min()


def test_another_type_of_tokenizer_is_refused(hub: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(hub, tmp_path / "hub"))
    rewrite(folder, "tokenizer.json", normalizer={"type": "NFKC"})
    with pytest.raises(RunError, match="unsupported tokenizer with the normalizer"):
        import_huggingface(folder, tmp_path / "run")


def test_a_body_alone_comes_with_a_warning(tmp_path: Path) -> None:
    theirs = modernbert(tmp_path / "hub", 0, transformers.ModernBertModel)
    done = import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert len(done.warnings) == 1 and "no masked-LM head" in done.warnings[0] and done.command == "embed"
    model = load_model(done.path, "mlm", device="cpu").model
    ids = torch.randint(40, 400, (2, 20))
    with torch.no_grad():
        expected = theirs(order_of(done.path)[ids]).last_hidden_state
        torch.testing.assert_close(model.hidden(ids, PackedLayout.unpacked(2)), expected, **NEAR)
