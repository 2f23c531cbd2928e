"""BERT and GPT of loaded runs in compiled loops."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from attnkit.checkpoints.weights import tensors_of
from attnkit.compiled.encoder import CompiledEncoder, compile_encoder
from attnkit.compiled.generator import CompiledGenerator
from attnkit.compiled.packed_language_model import PackedLanguageModel
from attnkit.compiled.packed_layers import MAX_HEAD
from attnkit.compiled.search import NO_NUMBA
from attnkit.engine.engine_choice import BY_TORCH, GPU, Engine, check_torch_may, number_of_threads
from attnkit.engine.loading import LoadedModel
from attnkit.errors import SystemFailure
from attnkit.kernels.jit import is_available
from attnkit.kernels.simd.targets import Precision
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.language_config import BertConfig, GptConfig


def reason_against_language_model(config: BertConfig | GptConfig) -> str | None:
    """Return a property of a model that compiled loops do not support, or None."""
    if not is_available():
        return NO_NUMBA
    if not config.plain_attention:
        return "attention other than scaled_dot with softmax"
    if isinstance(config, BertConfig) and config.d_embedding is not None:
        return "embeddings of another width (d_embedding)"
    return f"heads wider than {MAX_HEAD}" if config.d_head > MAX_HEAD else None


def set_precision(opened: LoadedModel, precision: Precision, notify: Callable[[str], None]) -> bool:
    """Let the BERT encoder of a loaded model run in a precision; float32 is torch's.

    Returns whether it runs in compiled loops. ``notify`` receives a note before loops are compiled, or if they lack an
    option of the encoder: then torch computes in float32. Raises ``UsageError`` if the kind of model or the device has
    no such precision, ``SystemFailure`` if the loops cannot be compiled.
    """
    if precision == "float32":
        return False
    found = opened.model if isinstance(opened.model, Bert) else getattr(opened.model, "encoder", None)
    if not isinstance(found, Bert):
        reason: str | None = f"a model of kind {opened.config.model.kind}"
    elif opened.device.type != "cpu":
        reason = GPU
    else:
        reason = reason_against_language_model(opened.config.model)
    if reason is not None and isinstance(found, Bert) and reason not in (GPU, NO_NUMBA):
        notify(f"compiled loops do not support {reason}; using torch in float32 instead of {precision}")
        return False
    if reason is not None:
        check_torch_may(reason, "auto", precision, notify, by_torch=("float32",))
    assert isinstance(found, Bert)
    with _other_help(precision):
        packed = _pack(opened, found, precision)
        n_threads = number_of_threads(torch.get_num_threads())
        compile_encoder(found, CompiledEncoder(packed, n_threads=n_threads, notify=notify))
    return True


def _pack(
    opened: LoadedModel, model: Bert | Gpt, precision: Precision, n_words: int | None = None
) -> PackedLanguageModel:
    weights = {name: tensor.detach().numpy() for name, tensor in tensors_of(model).items()}
    return PackedLanguageModel(opened.config.model, weights, precision, n_words=n_words)


@contextmanager
def _other_help(precision: Precision, engine: Engine = "auto") -> Iterator[None]:
    """Where torch has float32 alone, point to that if loops cannot be compiled."""
    try:
        yield
    except SystemFailure as error:
        if precision == "float32":
            raise
        help = "use --precision float32" + (" and --engine auto" if engine == "compiled" else "")
        raise SystemFailure(error.what, where=error.where, help=help) from error


def compile_generator(
    opened: LoadedModel,
    window: int,
    engine: Engine,
    precision: Precision,
    notify: Callable[[str], None],
    n_words: int | None = None,
) -> CompiledGenerator | None:
    """Return a loaded GPT in compiled loops, or None if torch is to run it.

    Ids from ``n_words`` are never chosen; None: there are none.

    Raises ``UsageError`` if the engine or the precision is not available, ``SystemFailure`` if the loops cannot be
    compiled and there is no other way.
    """
    reason = GPU if opened.device.type != "cpu" else reason_against_language_model(opened.config.model)
    reason = BY_TORCH if engine == "torch" else reason
    if reason is not None:
        check_torch_may(reason, engine, precision, notify, by_torch=("float32",))
        return None
    try:
        with _other_help(precision, engine):
            packed = _pack(opened, opened.model, precision, n_words)
            n_threads = number_of_threads(torch.get_num_threads())
            return CompiledGenerator(packed, window, n_threads=n_threads, notify=notify)
    except SystemFailure as error:  # no compiler, or no memory for it
        if engine == "compiled" or precision != "float32":
            raise
        notify(f"{error.what}; using torch, which is slower")
        return None
