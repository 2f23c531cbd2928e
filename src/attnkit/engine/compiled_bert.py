"""BERT in bfloat16 and int8: its encoder in compiled loops, its heads in torch."""

from collections.abc import Callable

import torch

from attnkit.checkpoints.weights import tensors_of
from attnkit.compiled.encoder import CompiledEncoder, compile_encoder
from attnkit.compiled.packed_layers import MAX_HEAD
from attnkit.engine.loading import LoadedModel
from attnkit.errors import UsageError
from attnkit.kernels.jit import is_available
from attnkit.kernels.simd.targets import Precision
from attnkit.models.bert import Bert
from attnkit.models.language_config import BertConfig


def reason_against_encoder(config: BertConfig) -> str | None:
    """Return a property of an encoder that compiled loops do not support, or None."""
    if not is_available():
        return "this installation, which lacks numba"
    if not config.plain_attention:
        return "attention other than scaled_dot with softmax"
    if config.glu:
        return "gated layers (glu)"
    return f"heads wider than {MAX_HEAD}" if config.d_head > MAX_HEAD else None


def set_precision(opened: LoadedModel, precision: Precision, notify: Callable[[str], None]) -> None:
    """Let the BERT encoder of a loaded model run in a precision; float32 is torch's.

    ``notify`` receives a note before loops are compiled. Raises ``UsageError`` if the model or the device has no such
    precision, ``SystemFailure`` if the loops cannot be compiled.
    """
    if precision == "float32":
        return
    found = opened.model if isinstance(opened.model, Bert) else getattr(opened.model, "encoder", None)
    if not isinstance(found, Bert):
        reason: str | None = f"a model of kind {opened.config.model.kind}"
    elif opened.device.type != "cpu":
        reason = "a GPU"
    else:
        reason = reason_against_encoder(opened.config.model)
    if reason is not None:
        what = f"{precision} needs compiled loops, which do not support {reason}"
        help = "use --device cpu" if reason == "a GPU" else "use --precision float32"
        raise UsageError(what, where="--precision", help=help)
    assert isinstance(found, Bert)
    weights = {name: tensor.detach().numpy() for name, tensor in tensors_of(found).items()}
    n_threads, config = torch.get_num_threads(), opened.config.model
    compile_encoder(found, CompiledEncoder(config, weights, precision, n_threads=n_threads, notify=notify))
