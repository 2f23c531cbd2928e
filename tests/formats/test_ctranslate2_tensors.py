"""An exported folder of CTranslate2 has, tensor by tensor, what its own converter makes of the imported folder."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")
pytest.importorskip("ctranslate2")

import numpy as np
import transformers
from ctranslate2.converters.transformers import _MODEL_LOADERS
from hub_encoders import ENCODERS
from t5_folders import T5_SHAPES, t5_folder
from test_gpt2_export import gpt2_folder
from test_llama_import import SHAPES as LLAMAS
from test_llama_import import llama_folder
from translators import SHAPES, m2m_folder, marian_folder, mbart_folder, nllb_folder

from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.tasks.translation.loading import load_run

DTYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)
WORDS = ("embeddings/weight", "embeddings_0/weight", "projection/weight", "projection/bias")


class Layout(NamedTuple):
    make: Callable[..., Any]
    changes: dict[str, Any]
    languages: tuple[str, str] | None = None
    auto: str = "AutoModelForSeq2SeqLM"


CLM, BODY = "AutoModelForCausalLM", "AutoModel"
LAYOUTS: dict[str, Layout] = {
    **{f"marian, {name}": Layout(marian_folder, changes) for name, changes in SHAPES.items() if "two vo" not in name},
    "m2m100": Layout(m2m_folder, {}, ("en", "de")),
    "nllb": Layout(nllb_folder, {"d_model": 48, "encoder_layers": 3}, ("eng_Latn", "deu_Latn")),
    "mbart": Layout(mbart_folder, {"decoder_layers": 3}, ("en_XX", "de_DE")),
    **{name: Layout(t5_folder, changes) for name, changes in T5_SHAPES.items()},
    "gpt2": Layout(gpt2_folder, {}, None, CLM),
    "gpt2, untied": Layout(gpt2_folder, {"tie_word_embeddings": False, "n_inner": 48, "n_layer": 3}, None, CLM),
    **{f"llama, {name}": Layout(llama_folder, LLAMAS[name], None, CLM) for name in ("all heads", "groups, tied")},
    **{f"distilbert {shape}": Layout(ENCODERS["distilbert"], {"shape": shape}, None, BODY) for shape in (0, 1)},
    "roberta": Layout(ENCODERS["roberta"], {}, None, BODY),
    "bert": Layout(ENCODERS["bert"], {"kind": transformers.BertForPreTraining}, None, BODY),
}


def read_model(path: Path) -> dict[str, np.ndarray]:
    """Return the variables of ``model.bin`` of version 6, those with an alias under each name."""
    raw, place = path.read_bytes(), 0

    def number(kind: str) -> int:
        nonlocal place
        (value,) = struct.unpack_from(f"<{kind}", raw, place)
        place += struct.calcsize(f"<{kind}")
        return int(value)

    def text() -> str:
        nonlocal place
        n = number("H")
        place += n
        return raw[place - n : place - 1].decode()

    assert number("I") == 6
    text(), number("I")  # name and revision of the specification
    found: dict[str, np.ndarray] = {}
    for _ in range(number("I")):
        name, shape = text(), [number("I") for _ in range(number("B"))]
        kind, n = DTYPES[number("B")], number("I")
        found[name] = np.frombuffer(raw[place : place + n], kind).reshape(shape)
        place += n
    for _ in range(number("I")):
        alias = text()
        found[alias] = found[text()]
    assert place == len(raw)
    return found


def orders(run: Path, layout: Layout) -> list[list[int | None]]:
    """Return the ids of the folder by ours, of source and target or of the only vocabulary."""
    if layout.auto == "AutoModelForSeq2SeqLM":
        loaded = load_run(run, device="cpu")
        sides = loaded.src_tokenizer.pieces, loaded.tgt_tokenizer.pieces
        return [list(side.order) for side in sides if side is not None]
    task = "clm" if layout.auto == CLM else "mlm"
    origin = read_tokenizer(load_model(run, task, device="cpu").checkpoint).origin
    assert origin is not None
    return [list(origin.order)] * 2


def turned(key: str, value: np.ndarray) -> np.ndarray:
    """Return a tensor of Marian with its model's dimensions in our order.

    transformers has the sines of positions before the cosines; here they alternate, and with them all that is added.
    """
    if key.endswith(("linear_0/bias", "/attention/linear_1/bias", "projection/bias")):
        return value
    out = "self_attention/linear_1/", "/attention/linear_2/", "ffn/linear_1/"
    axis = 0 if any(part in key for part in out) else value.ndim - 1
    n = value.shape[axis] // 2
    return value.take(np.arange(2 * n).reshape(2, n).T.ravel(), axis)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_tensor_is_that_of_the_imported_folder(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    layout.make(tmp_path / "hub", **layout.changes)
    src, tgt = layout.languages or (None, None)
    run = import_huggingface(tmp_path / "hub", tmp_path / "run", src_lang=src, tgt_lang=tgt).path
    ours = read_model(export_ctranslate2(run, tmp_path / "ct2").path / "model.bin")
    theirs = getattr(transformers, layout.auto).from_pretrained(tmp_path / "hub").eval()
    # Keys of published files, which the converter asks for and transformers 5 does not write.
    theirs.config.position_embedding_type, theirs.config.normalize_before = "absolute", True
    spec = _MODEL_LOADERS[type(theirs.config).__name__].get_model_spec(theirs)
    expected = variables(spec)
    known, n_tensors = orders(run, layout), 0
    for key, value in expected.items():
        if value.ndim == 0 or value.dtype.kind != "f" or (name == "roberta" and "pooler" in key):
            continue  # a RoBERTa with a masked-LM head has no pooler
        if key == "encoder/embeddings_1/weight" and key not in ours:
            assert not value.any(), "the only segment is added to the positions"
            continue
        found, value = ours[key], turned(key, value) if name.startswith("marian") else value
        if key.endswith(WORDS):
            order = known[key.startswith("decoder")]
            places = [place for place, id in enumerate(order) if place > 1 and id is not None and id < len(value)]
            assert len(places) >= len(value) - 2, "padding and BOS"
            found, value = found[places], value[[order[place] for place in places]]
        elif key.endswith("position_encodings/encodings"):
            n = min(len(found), len(value))
            assert n > 30
            found, value = found[:n], value[:n]
        sines = key.endswith("position_encodings/encodings") and name.startswith(("m2m", "nllb", "marian"))
        np.testing.assert_allclose(found, value, rtol=0, atol=2e-5 if sines else 0, err_msg=key)
        n_tensors += 1
    left = {key for key, value in ours.items() if value.ndim and key not in expected}
    assert left <= {"decoder/projection/bias"} and not any(ours[key][1:].any() for key in left), "but of padding"
    assert n_tensors > 15


def variables(spec: Any) -> dict[str, np.ndarray]:
    """Return the tensors of a specification of CTranslate2."""
    found = {}
    for key, value in spec.variables().items():
        while hasattr(value, "numpy") or hasattr(value, "detach"):
            value = value.detach().numpy() if hasattr(value, "detach") else value.numpy()
        if not isinstance(value, str):
            found[key] = np.asarray(value)
    return found
