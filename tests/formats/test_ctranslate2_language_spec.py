"""Every kind of encoder and generator that CTranslate2 takes computes there what it computes here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from hub_runs import shaken

from attnkit.errors import RunError
from attnkit.formats.ctranslate2 import Arrays, unique_names
from attnkit.formats.ctranslate2_language import make_encoder_spec, make_generator_spec
from attnkit.formats.exportable import check_ctranslate2
from attnkit.models.bert import SequenceClassifier
from attnkit.models.gpt import Gpt
from attnkit.models.language_config import BertConfig, GptConfig
from attnkit.models.layers import PackedLayout

SIZES = {"d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "max_length": 200}
N_WORDS = 48
NAMES = unique_names([f"w{i}" for i in range(N_WORDS)])
LLAMA = {"positions": "rotary", "normalization": "rms", "glu": True, "activation": "silu", "bias": False}
LLAMA_3 = {"kind": "llama3", "factor": 32.0, "low_freq_factor": 2.0, "high_freq_factor": 5.0, "original_length": 64}
GENERATORS: list[dict[str, Any]] = [
    *({"positions": positions, "norm": norm} for positions in ("learned", "sinusoidal") for norm in ("pre", "post")),
    *({"positions": "alibi", "n_heads": n, "d_model": 24} for n in (4, 6)),
    *({"activation": activation, "glu": activation == "gelu"} for activation in ("relu", "gelu", "silu")),
    {"tie_embeddings": False, "bias": False, "norm_eps": 1e-3},
    {"normalization": "rms", "norm": "post", "head_width": 16},
    {**LLAMA, "norm_eps": 1e-6},
    {**LLAMA, "n_key_value_heads": 2, "rope_base": 500.0},
    {**LLAMA, "n_key_value_heads": 1, "tie_embeddings": False, "rope_scaling": {"kind": "linear", "factor": 3.0}},
    {**LLAMA, "n_key_value_heads": 2, "head_width": 16, "bias": True},
    {**LLAMA, "n_key_value_heads": 1, "head_width": 4},
    {**LLAMA, "rope_scaling": {"kind": "llama3", "factor": 8.0}},
    {**LLAMA, "rope_scaling": LLAMA_3},
]
ENCODERS: list[dict[str, Any]] = [
    *({"positions": place, "norm": norm} for place in ("learned", "sinusoidal", "rotary") for norm in ("post", "pre")),
    *({"activation": kind, "glu": kind == "gelu_tanh"} for kind in ("relu", "silu", "gelu_tanh")),
    *({"pooler": pooler, "n_segments": n} for pooler, n in (("relu", 1), ("gelu", 3))),
    {"bias": False, "norm_bias": False, "norm_eps": 1e-3},
    {"positions": "rotary", "activation": "silu", "rope_base": 500.0},
    {"positions": "rotary", "norm": "pre", "norm_bias": False, "local_window": 8, "global_every": 1},
]


def named(kind: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in kind.items())


def arrays_of(model: torch.nn.Module) -> Arrays:
    return {name.removeprefix("encoder."): tensor.numpy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("kind", GENERATORS, ids=named)
def test_a_generator_predicts_the_same(kind: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = GptConfig.model_validate({**SIZES, **kind})
    model: Any = shaken(Gpt(config, N_WORDS))
    make_generator_spec(config, arrays_of(model), NAMES, None).save(str(tmp_path))
    generator = ctranslate2.Generator(str(tmp_path), compute_type="float32", intra_threads=1)
    rows = torch.randint(4, N_WORDS, (2, 150))

    def logits(rows: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            found: np.ndarray = model.head(model.hidden(rows, PackedLayout.unpacked(len(rows)))).numpy()
        return found

    expected = logits(rows)
    assert expected.std() > 0.3, "the test needs logits that differ"
    np.testing.assert_allclose(np.array(generator.forward_batch(rows.tolist())), expected, rtol=0, atol=1e-4)
    # Step by step, with the cache of CTranslate2: the most probable words, and the scores of given ones.
    row = rows[:1, :20]
    options: Any = {"max_length": 30, "include_prompt_in_result": False, "end_token": "</s>"}
    made = generator.generate_batch([[NAMES[id] for id in row[0]]], **options)[0].sequences_ids[0]
    for id in made:
        assert id == logits(row)[0, -1].argmax()
        row = torch.cat((row, torch.tensor([[id]])), dim=1)
    assert made and (len(made) == 30 or logits(row)[0, -1].argmax() == 2)
    scores = generator.score_batch([[NAMES[id] for id in row] for row in rows])
    by_word = torch.from_numpy(expected).log_softmax(-1)[:, :-1].gather(-1, rows[:, 1:, None])[..., 0]
    np.testing.assert_allclose([score.log_probs for score in scores], by_word, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ENCODERS, ids=named)
def test_an_encoder_has_the_same_features(kind: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = BertConfig.model_validate({**SIZES, **kind})
    model: Any = shaken(SequenceClassifier(config, N_WORDS, 3))
    check_ctranslate2(SimpleNamespace(task="text-classification", model=config))
    make_encoder_spec(config, arrays_of(model), NAMES, "pooler.linear", None).save(str(tmp_path))
    encoder = ctranslate2.Encoder(str(tmp_path), compute_type="float32", intra_threads=1)
    rows = [torch.randint(4, N_WORDS, (n,)).tolist() for n in (150, 7, 1)]
    ids = torch.tensor([row + [0] * (150 - len(row)) for row in rows])
    real = torch.arange(150) < torch.tensor([[len(row)] for row in rows])
    segments = torch.randint(0, config.n_segments, ids.shape) if config.n_segments > 1 else None
    with torch.no_grad():
        hidden = model.encoder.hidden(ids, PackedLayout.padded(real), segments)
        pooled = model.pooler(hidden[:, 0]).numpy()
    assert hidden.std() > 0.3, "the test needs features that differ"
    given: Any = {}
    if segments is not None:
        given = {"token_type_ids": [segments[i, : len(row)].tolist() for i, row in enumerate(rows)]}
    output = encoder.forward_batch(rows, **given)
    found = np.array(output.last_hidden_state)
    for i, row in enumerate(rows):
        np.testing.assert_allclose(found[i, : len(row)], hidden[i, : len(row)].numpy(), rtol=0, atol=1e-4)
    np.testing.assert_allclose(np.array(output.pooler_output), pooled, rtol=0, atol=1e-4)
    if segments is not None:  # without segments, all tokens are in the first
        with torch.no_grad():
            first = model.encoder.hidden(ids[:1], PackedLayout.unpacked(1)).numpy()
        np.testing.assert_allclose(
            np.array(encoder.forward_batch(rows[:1]).last_hidden_state), first, rtol=0, atol=1e-4
        )


NARROW = {"d_embedding": 16}
REFUSED: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "additive": ("clm", {"kind": "gpt", "alignment": "additive"}, "alignment", "attention other than scaled_dot"),
    "entmax": ("mlm", {"distribution": "sparsemax"}, "distribution", "attention other than scaled_dot with softmax"),
    "alibi": ("mlm", {"positions": "alibi"}, "model.positions", "encoders with alibi positions"),
    "window": ("mlm", {"positions": "rotary", "local_window": 8}, "model.local_window", "local layers"),
    "embedding norm": ("mlm", {"norm": "pre", "embedding_norm": True}, "model.embedding_norm", "pre-norm encoders"),
    "narrow": ("mlm", NARROW, "model.d_embedding", "embeddings of another width"),
    "head": ("question-answering", {"pooler": "mlm_head"}, "model.pooler", "a masked-LM head below the output"),
    "mean": ("text-classification", {"pooling": "mean"}, "model.pooling", "a pooler of the mean of all tokens"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_exist_there_is_refused(name: str) -> None:
    task, model, where, said = REFUSED[name]
    config = (GptConfig if task == "clm" else BertConfig).model_validate({**SIZES, **model})
    with pytest.raises(RunError, match=said) as caught:
        check_ctranslate2(SimpleNamespace(task=task, model=config))
    assert where in str(caught.value.where) and caught.value.help is not None and "supported: " in caught.value.help


def test_what_a_task_does_not_use_is_not_refused() -> None:
    config = BertConfig.model_validate({**SIZES, "pooler": "mlm_head", "pooling": "mean"})
    check_ctranslate2(SimpleNamespace(task="mlm", model=config))
    check_ctranslate2(SimpleNamespace(task="token-classification", model=config.model_copy(update={"pooler": "auto"})))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"task": "autoencode", "model": None}, "runs of task 'autoencode'"),
        ({"task": "text-classification", "model": SimpleNamespace(kind="han")}, "classifiers of kind 'han'"),
        ({"task": "clm", "model": GptConfig(), "direction": "right-to-left"}, "generators from right to left"),
    ],
)
def test_runs_of_another_kind_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError, match=said):
        check_ctranslate2(SimpleNamespace(**config))
