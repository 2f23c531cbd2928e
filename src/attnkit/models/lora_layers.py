"""LoRA (Hu et al. 2021) in a model: adapters beside weights, and their merging.

Letters: n blocks of rows of a weight, r rank.
"""

import copy
import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from attnkit.models.linear import Dropout, Linear, linear
from attnkit.models.lora import LoraConfig, RowBlock, adapted_blocks, factor_names, merge

Model = TypeVar("Model", bound=nn.Module)


class LoraFactors(nn.Module):
    """Factors of one weight: A (n r, columns), random, and B (n rows, r), zero."""

    def __init__(self, weight: Tensor, blocks: list[RowBlock], config: LoraConfig) -> None:
        super().__init__()
        self.blocks, self.scale, self.n_rows = blocks, config.scale, len(weight)
        n_adapted = sum(block.rows.stop - block.rows.start for block in blocks)
        self.A = nn.Parameter(weight.new_empty(len(blocks) * config.rank, weight.shape[1]))
        self.B = nn.Parameter(weight.new_zeros(n_adapted, config.rank))
        # As in the authors' code: uniform, of variance 1 / (3 columns). B is zero, so training starts from W.
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def spread(self) -> Tensor:
        """Return (alpha / r) B as (rows of the weight, n r), zero outside its blocks."""
        sizes = [block.rows.stop - block.rows.start for block in self.blocks]
        blocks = (self.B * self.scale).split(sizes)  # type: ignore[no-untyped-call]
        wide: Tensor = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]  # (n rows, n r)
        if len(wide) == self.n_rows:
            return wide
        at = torch.cat([torch.arange(b.rows.start, b.rows.stop, device=wide.device) for b in self.blocks])
        return wide.new_zeros(self.n_rows, wide.shape[1]).index_copy(0, at, wide)

    def delta(self) -> Tensor:
        """Return (alpha / r) B A, of the weight's shape."""
        return self.spread() @ self.A


class LoraLinear(Linear):
    """Linear map with a frozen weight W and adapters: W x + b + (alpha / r) B A x."""

    def __init__(self, frozen: nn.Linear, blocks: list[RowBlock], config: LoraConfig) -> None:
        # On "meta", no memory is allocated: both parameters are replaced by the given ones.
        super().__init__(frozen.in_features, frozen.out_features, frozen.bias is not None, device="meta")
        self.weight, self.bias = frozen.weight, frozen.bias
        self.lora = nn.ModuleDict({"weight": LoraFactors(frozen.weight, blocks, config)})
        self.dropout = Dropout(config.dropout)

    def forward(self, input: Tensor) -> Tensor:
        """Map input (..., in_features) to (..., out_features)."""
        factors = self.lora["weight"]
        assert isinstance(factors, LoraFactors)
        low = linear(self.dropout(input), factors.A)  # (..., n r)
        return super().forward(input).add_(linear(low, factors.spread()))


def add_lora(model: nn.Module, config: LoraConfig) -> None:
    """Freeze a model's weights and add adapters to its linear maps, in place.

    The names of its parameters stay the same. Raises ``ValueError`` if the model lacks a map of the configuration.
    """
    adapted = adapted_blocks({name: tuple(p.shape) for name, p in model.named_parameters()}, config)
    model.requires_grad_(False)
    for name, blocks in adapted.items():
        path, _, own = name.rpartition(".")
        module = model.get_submodule(path)
        if isinstance(module, nn.RNNBase):
            if "lora" not in module._modules:
                module.lora = nn.ModuleDict()
            module.get_submodule("lora").add_module(own, LoraFactors(module.get_parameter(own), blocks, config))
        else:
            assert isinstance(module, nn.Linear), "maps with weights per head have three dimensions"
            parent, _, child = path.rpartition(".")
            setattr(model.get_submodule(parent), child, LoraLinear(module, blocks, config))


def merged_copy(model: Model) -> Model:
    """Return a copy of a model with adapters merged into its weights.

    A model without adapters is returned itself. The copy has the parameter names of the model without adapters.
    """
    if not any(isinstance(module, LoraFactors) for module in model.modules()):
        return model
    # Tensors created in inference mode could not be used outside it later.
    with torch.inference_mode(False), torch.no_grad():
        merged = copy.deepcopy(model).requires_grad_(False)
        merge_lora(merged)
    return merged


@torch.no_grad()
def merge_lora(model: nn.Module) -> None:
    """Merge adapters into the weights of a model and remove them, in place."""
    own = dict(model.named_parameters())
    for path, module in list(model.named_modules()):
        if "lora" not in module._modules:
            continue
        parts = module._modules["lora"]
        assert isinstance(parts, nn.ModuleDict)
        for weight, factors in parts.items():
            assert isinstance(factors, LoraFactors)
            name = f"{path}.{weight}"
            a, b = (own[factor].float().cpu().numpy() for factor in factor_names(name))
            # By the function that merges files, so that the same adapters give the same weights to the bit.
            whole = own[name].float().cpu().clone()
            merge(whole.numpy(), (a, b), factors.blocks, factors.scale)
            own[name].data = whole.to(own[name])
        if isinstance(module, LoraLinear):
            plain = Linear(module.in_features, module.out_features, module.bias is not None, device="meta")
            plain.weight, plain.bias = module.weight, module.bias
            parent, _, child = path.rpartition(".")
            setattr(model.get_submodule(parent), child, plain.train(module.training))
        else:
            del module._modules["lora"]
