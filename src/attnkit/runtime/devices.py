"""Device, precision, number of threads and CPU matrix product of torch."""

import importlib.util
import os
import platform
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor

from attnkit.errors import UsageError
from attnkit.runtime.signals import launched_rank, usable_cpus

DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# oneDNN on x86 CPUs: in float32, F.linear and torch.mm use MKL, which reaches less than half of the peak speed on
# CPUs not made by Intel.
HAS_PRODUCT = (
    platform.machine() in ("x86_64", "AMD64")
    and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
"""Whether the matrix product of oneDNN is available."""
HAS_PACKING = HAS_PRODUCT and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")  #: whether oneDNN packs weights
# In bfloat16, oneDNN refuses these products without AVX-512; torch.mm has kernels of its own there.
_HAS_BFLOAT16 = HAS_PRODUCT and torch.ops.mkldnn._is_mkldnn_bf16_supported()
PRODUCT_DTYPES = (torch.float32, torch.bfloat16) if _HAS_BFLOAT16 else (torch.float32,)
"""The types that oneDNN multiplies on this processor."""
MIN_PRODUCT = 1 << 19
"""The least number of multiplications for which float32 products go to oneDNN.

Below, a call of oneDNN takes longer than the product by MKL, forwards and backwards: 16 µs against 4, and 0.7 ms for a
number of rows that is new.
"""


def linear_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight.T + bias`` by oneDNN; x (..., k), weight (m, k) or packed."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def round_rows(n: int, bits: int = 4) -> int:
    """Return the smallest number of ``bits`` significant bits that is at least n.

    oneDNN compiles a product for its sizes, which takes .7 ms, and 5 ms with AMX. With 4 bits there are 8 numbers of
    rows for each doubling, less than 12.5 % above those asked for.
    """
    step = 1 << max(0, (n - 1).bit_length() - bits)
    return -(-n // step) * step


def pad_rows(x: Tensor) -> Tensor:
    """Return a matrix with rows of zeros at its end, ``round_rows`` in all."""
    rows, padded = len(x), round_rows(len(x))
    if padded == rows:
        return x
    out = x.new_empty(padded, x.shape[1])
    out[:rows] = x
    out[rows:].zero_()
    return out


def choose_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` selects CUDA if available, else the CPU.

    MPS is used only on request: several of its float32 kernels differ from those of the CPU. Raises ``UsageError`` for
    an unknown name, or if the machine has no such device.
    """
    kind, _, number = name.partition(":")
    if kind not in DEVICES or not (name == kind or number.isdecimal()):
        help = "use cuda" if "gpu" in name.lower() else "use auto"
        raise UsageError(f"device must be one of {', '.join(DEVICES)}, not '{name[:80]}'", where="device", help=help)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError("this machine has no CUDA device that torch can use", where="device", help="use --device cpu")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UsageError("this machine has no MPS device that torch can use", where="device", help="use --device cpu")
    return torch.device(name)


def name_device(device: torch.device) -> str:
    """Return the kind of a device, and the model of a GPU: ``cuda (NVIDIA H100)``."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def has_fast_bfloat16(device: torch.device) -> bool:
    """Return whether matrix products are faster in bfloat16 than in float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
    return False


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype for training; ``auto`` selects bfloat16 if it is fast."""
    if name == "auto":
        name = "bfloat16" if has_fast_bfloat16(device) else "float32"
    return DTYPES[name]


_LOCK = threading.Lock()
_n_alone = _n_before = 0  # blocks of ``one_torch_thread`` in threads of the caller, and torch's threads before


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use one thread beside compiled loops.

    Its idle threads would wait for work actively, on the CPUs that the loops need.
    """
    global _n_alone, _n_before
    with _LOCK:
        if not _n_alone:
            _n_before = torch.get_num_threads()
        _n_alone += 1
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            _n_alone -= 1
            torch.set_num_threads(_n_before)  # which sets it for this thread alone


def set_threads(threads: int | None) -> None:
    """Set the number of threads per operation; it affects results in the last bits.

    None keeps the default of torch. Under ``torchrun``, which sets one thread per process, None divides the usable CPUs
    among the local processes.
    """
    n_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if threads is None and launched_rank() is not None and n_local > 1:
        threads = max(1, usable_cpus() // n_local)
    if threads is not None:
        torch.set_num_threads(threads)


@lru_cache
def has_triton(device: torch.device) -> bool:
    """Return whether Triton is installed and supports this GPU (Ampere or later)."""
    found = torch.version.hip is None and importlib.util.find_spec("triton") is not None
    if not found or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        from triton.runtime import driver

        driver.active.get_current_target()  # compiles a small C module, which needs a compiler and Python's headers
    except Exception as error:
        warnings.warn(f"Triton does not work here, so slower kernels are used: {error}", stacklevel=2)
        return False
    return True
