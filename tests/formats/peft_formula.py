"""Adapters as PEFT documents them: written with random factors, and added to models of transformers."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

PREFIX = "base_model.model."


def targeted(model: nn.Module, targets: Sequence[str]) -> dict[str, Any]:
    """Return the modules whose names are a target or end with one after a dot, as PEFT finds them."""
    chosen = {
        name: module
        for name, module in model.named_modules()
        if any(name == target or name.endswith(f".{target}") for target in targets)
    }
    assert chosen and all(hasattr(module, "weight") for module in chosen.values())
    return chosen


def sizes_of(module: Any) -> tuple[int, int]:
    """Return the outputs and inputs of a linear map; GPT-2's is stored transposed."""
    n_in, n_out = module.weight.shape
    return (n_out, n_in) if type(module).__name__ == "Conv1D" else (n_in, n_out)


def saved_heads(model: nn.Module, saved: Sequence[str] | None) -> list[str]:
    """Return the names of parameters of modules that are trained in full."""
    return [name for name, _ in model.named_parameters() if any(f".{one}." in f".{name}" for one in saved or ())]


def write_adapter(
    model: nn.Module, folder: Path, targets: Sequence[str], rank: int = 3, seed: int = 1, **settings: Any
) -> None:
    """Write an adapter with random factors, as PEFT saves one."""
    generator, tensors = torch.Generator().manual_seed(seed), dict[str, Tensor]()
    for name, module in targeted(model, targets).items():
        n_out, n_in = sizes_of(module)
        for factor, shape in (("A", (rank, n_in)), ("B", (n_out, rank))):
            tensors[f"{PREFIX}{name}.lora_{factor}.weight"] = torch.randn(shape, generator=generator) * 0.3
    for name in saved_heads(model, settings.get("modules_to_save")):
        like = model.get_parameter(name)
        tensors[f"{PREFIX}{name}"] = torch.randn(like.shape, generator=generator) * 0.3
    folder.mkdir()
    tree = {"peft_type": "LORA", "r": rank, "lora_alpha": 4, "target_modules": list(targets), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps({**tree, **settings}))
    safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors")


def add_adapter(model: Any, folder: Path) -> Any:
    """Return a copy of a model whose targeted modules compute W x + b + alpha / r · B A x.

    Those of ``modules_to_save`` have the weights of the file.
    """
    tree = json.loads((folder / "adapter_config.json").read_text())
    factors = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    adapted = copy.deepcopy(model)

    def setting(name: str, pattern: str, usual: str) -> Any:
        patterns = (tree.get(pattern) or {}).items()
        return next((value for key, value in patterns if re.match(rf"(.*\.)?({key})$", name)), tree[usual])

    for name, module in targeted(adapted, tree["target_modules"]).items():
        a, b = (factors.pop(f"{PREFIX}{name}.lora_{factor}.weight") for factor in "AB")
        rank, alpha = setting(name, "rank_pattern", "r"), setting(name, "alpha_pattern", "lora_alpha")
        n_out, n_in = sizes_of(module)
        assert a.shape == (rank, n_in) and b.shape == (n_out, rank)
        scale = alpha / (rank**0.5 if tree.get("use_rslora") else rank)

        def added(_: Any, given: Any, output: Tensor, a: Tensor = a, b: Tensor = b, scale: float = scale) -> Tensor:
            return output + scale * given[0] @ a.T @ b.T

        module.register_forward_hook(added)
    heads = saved_heads(adapted, tree.get("modules_to_save"))
    assert factors.keys() == {f"{PREFIX}{name}" for name in heads}, "no other tensors than targets and heads"
    with torch.no_grad():
        for name in heads:
            adapted.get_parameter(name).copy_(factors[f"{PREFIX}{name}"])
    return adapted
