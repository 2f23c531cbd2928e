"""LoRA in PEFT's format: configuration, names of modules, factors.

PEFT has a pair of factors per linear module of transformers, and attnkit one per block of rows of its own weights. Most
modules are one block. A fused module, such as ``c_attn`` of GPT-2, holds several: its pair then has their ranks added,
with B zero outside the rows and columns of each block. A fused pair of another form has one A for all its rows: each
block gets a copy.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from attnkit.formats.huggingface.layout import Link, sines_first
from attnkit.models.lora import MAX_ALPHA, MAX_RANK, LoraConfig, MapName, RowBlock, factor_names

PREFIX = "base_model.model."  #: before the names of modules
MODULE_MAPS: tuple[MapName, ...] = ("query", "key", "value", "output", "up", "gate", "down")
"""Maps that are modules of transformers, in the order of a configuration."""
_FUSED = 3  #: maps that a module holds at most
_Rank = Annotated[int, Field(ge=1, le=_FUSED * MAX_RANK)]
_Alpha = Annotated[int | float, Field(gt=0, le=_FUSED * MAX_ALPHA)]
Pair = tuple[Tensor, Tensor]  #: A (r, columns) and B (rows, r)
Shape = tuple[int, ...]


class PeftConfig(BaseModel, extra="ignore", strict=True):
    """Keys of ``adapter_config.json``; others that change the formula are refused."""

    peft_type: Literal["LORA"]
    r: _Rank
    lora_alpha: _Alpha
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    use_rslora: bool = False
    rank_pattern: dict[str, _Rank] | None = Field(default=None, max_length=1000)
    alpha_pattern: dict[str, _Alpha] | None = Field(default=None, max_length=1000)
    # Other methods change the weights of the base, too.
    init_lora_weights: Literal[True, False, "gaussian"] = True
    use_dora: Literal[False] = False
    fan_in_fan_out: bool = False  # of the base's weights: factors are the same
    bias: Literal["none"] = "none"
    modules_to_save: list[str] | None = Field(default=None, max_length=100)
    layers_to_transform: list[int] | None = Field(default=None, max_length=0)
    layer_replication: list[list[int]] | None = Field(default=None, max_length=0)
    target_parameters: list[str] | None = Field(default=None, max_length=0)
    trainable_token_indices: list[int] | None = Field(default=None, max_length=0)
    alora_invocation_tokens: list[int] | None = Field(default=None, max_length=0)

    def patterns_are_names(self) -> bool:
        """Return whether patterns of modules are ends of their names, not expressions."""
        patterns = [*(self.rank_pattern or {}), *(self.alpha_pattern or {})]
        return all(re.fullmatch(r"\w+(\.\w+)*", pattern) for pattern in patterns)

    def saves(self, module: str) -> bool:
        """Return whether a module is trained in full, by the rule of PEFT."""
        return any(module.endswith(name) for name in self.modules_to_save or ())

    def rank(self, module: str) -> int:
        """Return the rank of a module's pair."""
        return next((rank for end, rank in (self.rank_pattern or {}).items() if has_end(module, end)), self.r)

    def scale(self, module: str) -> float:
        """Return the factor alpha / r of a module (Kalajdzievski 2023: alpha / √r)."""
        patterns, rank = self.alpha_pattern or {}, self.rank(module)
        alpha = next((alpha for end, alpha in patterns.items() if has_end(module, end)), self.lora_alpha)
        return float(alpha) / (math.sqrt(rank) if self.use_rslora else rank)


class Part(NamedTuple):
    """A block of rows of one of our weights, as rows of a module."""

    map: MapName
    link: Link
    number: int  #: of the block among the adapted ones of the weight
    ours: slice  #: rows of our weight
    share: slice  #: rows among those of the module that belong to our weight
    begin: int  #: first of those rows in the module

    @property
    def rows(self) -> slice:
        """Rows of the module."""
        return slice(self.begin + self.share.start, self.begin + self.share.stop)


@dataclass(frozen=True)
class Module:
    """A linear module of transformers, and the adapted blocks that it holds."""

    name: str
    shape: tuple[int, int]  #: outputs, inputs
    parts: list[Part]

    @property
    def is_fused(self) -> bool:
        """Whether it holds more than one block, adapted or not."""
        return self.parts[0].rows != slice(0, self.shape[0])

    def tensor(self, factor: str) -> str:
        """Return the name of its factor ``A`` or ``B`` in a file."""
        return f"{PREFIX}{self.name}.lora_{factor}.weight"


def has_end(name: str, end: str) -> bool:
    """Return whether a name is ``end`` or ends with it, as PEFT compares names."""
    return name == end or name.endswith(f".{end}")


def modules_of(
    links: Sequence[Link], shapes: Mapping[str, Shape], blocks: Mapping[str, list[RowBlock]]
) -> list[Module]:
    """Return the modules of transformers that hold the adapted blocks."""
    found: dict[str, Module] = {}
    for link in [link for link in links if link.ours in blocks]:  # tied weights have none
        n_rows, n_parts = shapes[link.ours][0], len(link.theirs)
        ends = [0, *accumulate(link.sizes or [n_rows // n_parts] * n_parts)]
        for number, (name, rows) in enumerate(blocks[link.ours]):
            at = bisect_right(ends, rows.start) - 1
            module = link.theirs[at].removesuffix(".weight")
            size = (ends[at + 1] - ends[at]) * link.part[1], shapes[link.ours][1]
            share = slice(rows.start - ends[at], rows.stop - ends[at])
            part = Part(name, link, number, rows, share, link.part[0] * n_rows)
            found.setdefault(module, Module(module, size, [])).parts.append(part)
    return list(found.values())


def shortest_ends(chosen: Iterable[str], others: Collection[str]) -> list[str]:
    """Return ends of names that all of the chosen have, and none of the others.

    >>> shortest_ends(["0.attention.dense", "1.attention.dense"], ["0.dense", "pooler.dense"])
    ['attention.dense']
    """
    ends: dict[str, None] = {}
    for name in chosen:
        words = name.split(".")
        tails = (".".join(words[-n:]) for n in range(1, len(words) + 1))
        ends[next(tail for tail in tails if not any(has_end(other, tail) for other in others))] = None
    return list(ends)


def to_pairs(
    modules: Sequence[Module],
    shapes: Mapping[str, Shape],
    blocks: Mapping[str, list[RowBlock]],
    factors: Mapping[str, Tensor],
) -> dict[str, Pair]:
    """Return module name -> pair, from attnkit's factors."""
    halves: dict[str, tuple[Sequence[Tensor], dict[str, Tensor]]] = {}  # weight -> A of each block, B of each module
    for link in {part.link.ours: part.link for module in modules for part in module.parts}.values():
        a, b = (factors[name] for name in factor_names(link.ours))
        own, whole, row = blocks[link.ours], b.new_zeros(shapes[link.ours][0], b.shape[1]), 0
        for _, rows in own:
            n_rows = rows.stop - rows.start
            whole[rows], row = b[row : row + n_rows], row + n_rows
        columns = a[:, sines_first(a.shape[1])] if link.width_axis == 1 else a
        halves[link.ours] = columns.chunk(len(own)), _of_rows(link).split(whole)
    made = {}
    for module in modules:
        pairs = [
            (halves[part.link.ours][0][part.number], halves[part.link.ours][1][f"{module.name}.weight"][part.share])
            for part in module.parts
        ]
        made[module.name] = _joined(module, pairs)
    return made


def _of_rows(link: Link) -> Link:
    """Return a link for B, whose rows are those of the weight, whatever its columns."""
    return replace(link, transposed=False, width_axis=0 if link.width_axis == 0 else None, part=(0, 1))


def _joined(module: Module, pairs: Sequence[Pair]) -> Pair:
    """Return the pair of a module from those of its blocks."""
    if not module.is_fused:
        return pairs[0]
    first = pairs[0][0]
    covered = sum(len(b) for _, b in pairs) == module.shape[0]
    if covered and all(torch.equal(a, first) for a, _ in pairs):
        return first, torch.cat([b for _, b in pairs])
    rank = len(first)
    wide = first.new_zeros(module.shape[0], rank * len(pairs))
    for number, (part, (_, b)) in enumerate(zip(module.parts, pairs, strict=True)):
        wide[part.rows, number * rank : (number + 1) * rank] = b
    return torch.cat([a for a, _ in pairs]), wide


def split_pairs(modules: Sequence[Module], pairs: Mapping[str, Pair]) -> dict[str, dict[MapName, Pair]]:
    """Return module name -> pair of each of its maps."""
    found: dict[str, dict[MapName, Pair]] = {}
    for module in modules:
        if not module.is_fused:
            found[module.name] = {module.parts[0].map: pairs[module.name]}
    ranks = {len(a) for maps in found.values() for a, _ in maps.values()}
    fused = [module for module in modules if module.is_fused]
    # Maps whose rows of B are zero in all modules have no adapters, unless this is true of all maps.
    used = {part.map for module in fused for part in module.parts if pairs[module.name][1][part.rows].any()}
    for module in fused:
        a, b = pairs[module.name]
        parts = [part for part in module.parts if part.map in used] or module.parts
        rank, rest = divmod(len(a), len(parts))
        own = [slice(n * rank, (n + 1) * rank) for n in range(len(parts))]
        placed = zip(parts, own, strict=True)
        if rest or not ranks <= {rank} or any(_is_outside(b[part.rows], columns) for part, columns in placed):
            found[module.name] = {part.map: (a, b[part.rows]) for part in module.parts}
        else:
            placed = zip(parts, own, strict=True)
            found[module.name] = {part.map: (a[columns], b[part.rows, columns]) for part, columns in placed}
    return found


def _is_outside(rows: Tensor, columns: slice) -> bool:
    """Return whether rows have values outside the columns."""
    return bool(rows[:, : columns.start].any()) or bool(rows[:, columns.stop :].any())


def from_pairs(
    modules: Sequence[Module], shapes: Mapping[str, Shape], pairs: Mapping[str, Mapping[MapName, Pair]]
) -> dict[str, Tensor]:
    """Return attnkit's factors, from the pairs of the maps of each module.

    ``modules`` are those of the adapted blocks of attnkit's configuration.
    """
    parts: dict[str, list[tuple[Module, Part]]] = {}
    for module in modules:
        for part in module.parts:
            parts.setdefault(part.link.ours, []).append((module, part))
    factors = {}
    for weight, places in parts.items():
        link, first = places[0][1].link, pairs[places[0][0].name][places[0][1].map][0]
        sizes = link.sizes or [shapes[weight][0] // len(link.theirs)] * len(link.theirs)
        theirs = {name: first.new_zeros(size, len(first)) for name, size in zip(link.theirs, sizes, strict=True)}
        for module, part in places:
            theirs[f"{module.name}.weight"][part.share] = pairs[module.name][part.map][1]
        ordered = sorted(places, key=lambda place: place[1].number)
        a = torch.cat([pairs[module.name][part.map][0] for module, part in ordered])
        names = factor_names(weight)
        factors[names[0]] = a[:, sines_first(a.shape[1]).argsort()] if link.width_axis == 1 else a
        whole = _of_rows(link).join(theirs)
        factors[names[1]] = torch.cat([whole[part.ours] for _, part in ordered])
    return factors


def peft_tree(modules: Sequence[Module], others: Collection[str], lora: LoraConfig, ranks: Mapping[str, int]) -> Any:
    """Return ``adapter_config.json`` without the type of the task.

    ``others`` are names of modules without adapters, and ``ranks`` has the rank of each module.
    """
    wide: dict[int, list[str]] = {}
    for name, rank in ranks.items():
        if rank != lora.rank:
            wide.setdefault(rank, []).append(name)
    patterns: dict[str, int] = {}
    for rank, names in wide.items():
        narrow = {*others, *ranks} - {*names}
        patterns |= dict.fromkeys(shortest_ends(names, narrow), rank)
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": shortest_ends([module.name for module in modules], others),
        "rank_pattern": patterns,
        # The same factor alpha / r.
        "alpha_pattern": {end: lora.scale * rank for end, rank in patterns.items()},
        "fan_in_fan_out": any(part.link.transposed for module in modules for part in module.parts),
        "bias": "none",
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
    }
