"""Device, precision, threads and matrix product of torch."""

import os
import platform

import torch
from torch import Tensor

from attnkit.errors import UsageError
from attnkit.runtime.signals import launched_rank, usable_cpus

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# PyTorch's other matrix library on x86 CPUs: in float32 F.linear and torch.mm mean MKL, which uses less than half of a
# processor not made by Intel.
HAS_PRODUCT = (
    platform.machine() in ("x86_64", "AMD64")
    and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
"""Whether oneDNN's matrix product can be called."""
HAS_PACKING = HAS_PRODUCT and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")  #: whether it takes packed weights


def linear_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x (..., k) times weight (m, k) transposed, plus bias (m,), by oneDNN; the weight may be packed."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def choose_device(name: str) -> torch.device:
    """Return the device for a name; ``auto`` takes CUDA, then the CPU.

    MPS is taken only when asked for: several kernels there differ from the CPU's in float32. Raises ``UsageError`` if
    the machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("this machine has no CUDA device that torch can use", where="device", help="use --device cpu")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UsageError("this machine has no MPS device that torch can use", where="device", help="use --device cpu")
    return torch.device(name)


def has_fast_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware multiplies bfloat16 matrices faster than float32 ones."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
    return False


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the working type for training; ``auto`` takes bfloat16 where the hardware has it."""
    if name == "auto":
        name = "bfloat16" if has_fast_bfloat16(device) else "float32"
    return DTYPES[name]


def set_threads(threads: int | None) -> None:
    """Fix the number of threads of one operation; the results of a run depend on it in the last bits.

    None leaves it to torch, but not to ``torchrun``, which gives each of several processes one thread: they share the
    CPUs that they may use.
    """
    n_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if threads is None and launched_rank() is not None and n_local > 1:
        threads = max(1, usable_cpus() // n_local)
    if threads is not None:
        torch.set_num_threads(threads)
