"""Adapters to and from PEFT's format, and runs with merged weights.

PEFT (``adapter_model.safetensors``, ``adapter_config.json``) names the modules of Marian in transformers. It has a pair
of factors per module, and attnkit one per block of rows of a fused map: they correspond one to one.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import safetensors.torch
import torch
from pydantic import BaseModel, Field, ValidationError
from torch import Tensor

from attnkit.checkpoints.adapters import ADAPTER, DESCRIPTION, AdapterDescription, adapter_layout, is_adapter
from attnkit.checkpoints.checkpoint import MODEL, Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import read_tensors, tensors_of, to_bytes
from attnkit.config import dump_yaml
from attnkit.conversion.export_ctranslate2 import ExportResult, check_empty, n_bytes_of, new_folder
from attnkit.conversion.imported_run import ImportResult
from attnkit.conversion.new_run import check_is_new, write_new_run
from attnkit.conversion.vocabulary_files import read_tree
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_run_config
from attnkit.engine.checkpoint_metadata import read_tree as read_config_tree
from attnkit.engine.dry_run import SkipWeightInit
from attnkit.engine.task import task_of
from attnkit.engine.vocabularies import read_vocabularies
from attnkit.errors import RunError
from attnkit.formats.exportable import check_marian
from attnkit.formats.huggingface import translation_layout, weights
from attnkit.formats.huggingface.layout import sines_first
from attnkit.io import atomic
from attnkit.io.safe_read import Entry
from attnkit.models.lora import LoraConfig, MapName, RowBlock, adapted_blocks, factor_names

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  #: before the names of modules
MODULES: dict[MapName, str] = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
    "up": "fc1",
    "down": "fc2",
}
"""Map -> name of its modules in Marian."""


class _PeftConfig(BaseModel, extra="ignore", strict=True):
    """Keys of ``adapter_config.json``; others that change the formula are refused."""

    peft_type: Literal["LORA"]
    r: int = Field(ge=1, le=1024)
    lora_alpha: int | float = Field(gt=0)
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    use_rslora: bool = False
    # Other methods change the weights of the base, too.
    init_lora_weights: Literal[True, False, "gaussian"] = True
    use_dora: Literal[False] = False
    fan_in_fan_out: Literal[False] = False
    bias: Literal["none"] = "none"
    rank_pattern: dict[str, int] | None = Field(default=None, max_length=0)
    alpha_pattern: dict[str, int] | None = Field(default=None, max_length=0)
    modules_to_save: list[str] | None = Field(default=None, max_length=0)
    layers_to_transform: list[int] | None = Field(default=None, max_length=0)
    layer_replication: list[list[int]] | None = Field(default=None, max_length=0)
    target_parameters: list[str] | None = Field(default=None, max_length=0)
    trainable_token_indices: list[int] | None = Field(default=None, max_length=0)
    alora_invocation_tokens: list[int] | None = Field(default=None, max_length=0)

    @property
    def alpha(self) -> float:
        """Alpha, so that alpha / r is the factor (Kalajdzievski 2023: alpha / √r)."""
        return float(self.lora_alpha) * (math.sqrt(self.r) if self.use_rslora else 1.0)


class _Module(NamedTuple):
    """A module of Marian and the factors that adapt it."""

    name: str
    map: MapName
    factors: tuple[str, str]  #: names of A and B
    number: int  #: block of the factors
    width_axis: int | None  #: axis of the weight that is in Marian's order


def _modules(config: Any, adapted: Mapping[str, list[RowBlock]]) -> list[_Module]:
    """Return the modules of Marian that the adapted blocks are."""
    links = {link.ours: link for link in translation_layout.marian_links(config)}
    modules = []
    for weight, blocks in adapted.items():
        link = links[weight]
        n_rows = blocks[0].rows.stop - blocks[0].rows.start
        for number, (name, rows) in enumerate(blocks):
            module = link.theirs[rows.start // n_rows].removesuffix(".weight")
            modules.append(_Module(module, name, factor_names(weight), number, link.width_axis))
    return modules


def _model(checkpoint: Checkpoint, task: str = "translation") -> tuple[Any, dict[str, Tensor]]:
    """Return the configuration of a run, and the tensors of its model, not read."""
    config = read_run_config(checkpoint, task)
    with torch.device("meta"), SkipWeightInit():
        return config, tensors_of(task_of(config).model_for_checkpoint(checkpoint, config))


def export_peft(run: Path, folder: Path, *, checkpoint: str | None = None) -> ExportResult:
    """Export a run's adapter in PEFT's format, for the base exported to transformers.

    Raises ``RunError`` if the run has no adapter or transformers does not support its model, ``UsageError`` if the
    folder is not empty.
    """
    check_empty(folder)
    chosen, warnings = RunFolder(run).checkpoint(checkpoint)
    if not is_adapter(chosen):
        raise RunError("this run has no adapter", where=str(run), help="train one: --set adapter.kind=lora")
    config, tensors = _model(chosen)
    check_marian(config.model)
    lora, blocks, shapes = adapter_layout(chosen, {name: tuple(t.shape) for name, t in tensors.items()})
    factors = read_tensors(chosen, ADAPTER, {name: torch.empty(shape, device="meta") for name, shape in shapes.items()})
    order, made = sines_first(config.model.d_model), dict[str, Tensor]()
    modules = _modules(config.model, blocks)
    for module in modules:
        n = sum(other.factors == module.factors for other in modules)
        a, b = (factors[name].chunk(n)[module.number] for name in module.factors)
        made[f"{PREFIX}{module.name}.lora_A.weight"] = (a[:, order] if module.width_axis == 1 else a).contiguous()
        made[f"{PREFIX}{module.name}.lora_B.weight"] = (b[order] if module.width_axis == 0 else b).contiguous()
    with new_folder(folder) as temporary:
        content = json.dumps(_peft_tree(lora, {module.map for module in modules}), indent=2) + "\n"
        atomic.write_new_file(temporary / CONFIG, content.encode())
        atomic.write_new_file(temporary / TENSORS, safetensors.torch.save(made, metadata={"format": "pt"}))
        atomic.write_new_file(temporary / "README.md", _CARD.format(checkpoint=chosen.name).encode())
    return ExportResult(folder, chosen.name, n_bytes_of(folder), tuple(warnings))


def _peft_tree(lora: LoraConfig, maps: set[MapName]) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "SEQ_2_SEQ_LM",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": [module for name, module in MODULES.items() if name in maps],
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
    }


def import_peft(folder: Path, base: Path, run: Path) -> ImportResult:
    """Import an adapter in PEFT's format as a run, with the weights of ``base``.

    Raises ``RunError`` if the adapter is damaged, of another kind or does not fit the base, ``UsageError`` if ``run``
    already contains a run.
    """
    check_is_new(run)
    chosen = RunFolder(base).checkpoint()[0]
    config, tensors = _model(chosen)
    check_marian(config.model)
    where = str(folder / CONFIG)
    try:
        peft = _PeftConfig.model_validate(read_tree(folder / CONFIG))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"this adapter is not supported: {'.'.join(map(str, first['loc']))[:80]}: {first['msg']}"
        raise RunError(what, where=where, help="supported: LoRA of one rank, without biases") from error
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    everything = _modules(config.model, adapted_blocks(shapes, LoraConfig()))
    with weights.opened(folder / TENSORS) as file:
        # Older files have the name of the adapter before "weight".
        stored = {name.replace(".default.weight", ".weight"): name for name in file.entries}
        maps = tuple(name for name in MODULES if any(_tensor(m, "A") in stored for m in everything if m.map == name))
        expected = {_tensor(module, part) for module in everything if module.map in maps for part in "AB"}
        if odd := sorted(expected ^ stored.keys()) or ([] if maps else [TENSORS]):
            what = (
                f"the adapter does not fit the base: '{odd[0][:120]}' is {'missing' if odd[0] in expected else 'odd'}"
            )
            raise RunError(what, where=str(folder / TENSORS), help="supported: the same maps in all layers")
        lora = LoraConfig(rank=peft.r, alpha=peft.alpha, dropout=peft.lora_dropout, maps=maps)
        factors = _read_factors(file, stored, shapes, lora, config.model)
    merged = to_bytes(read_tensors(chosen, MODEL, tensors))
    _write_adapter(run, chosen, config, lora, factors, merged, folder)
    n_factors = sum(tensor.numel() for tensor in factors.values())
    return ImportResult(run, "translate", n_factors, read_vocabularies(chosen).tgt.vocab_size, ())


def _tensor(module: _Module, part: str) -> str:
    return f"{PREFIX}{module.name}.lora_{part}.weight"


def _read_factors(
    file: weights.TensorFile, stored: Mapping[str, str], shapes: Mapping[str, Any], lora: LoraConfig, model: Any
) -> dict[str, Tensor]:
    """Return attnkit's factors from PEFT's; raise ``RunError`` for a wrong shape."""
    blocks = adapted_blocks(shapes, lora)
    back, parts = torch.argsort(sines_first(model.d_model)), dict[str, list[Tensor]]()
    for module in _modules(model, blocks):
        weight = next(name for name in blocks if factor_names(name) == module.factors)
        rows = blocks[weight][module.number].rows
        sizes = {"A": (lora.rank, shapes[weight][1]), "B": (rows.stop - rows.start, lora.rank)}
        for part, name, axis in zip("AB", module.factors, (1, 0), strict=True):
            entry = file.entries[stored[_tensor(module, part)]]
            if entry.shape != sizes[part]:
                what = f"'{_tensor(module, part)}' is {[*entry.shape]}, not {[*sizes[part]]}"
                raise RunError(f"the adapter does not fit the base: {what}", where=TENSORS)
            tensor = file.read(stored[_tensor(module, part)])
            parts.setdefault(name, []).append(tensor.index_select(axis, back) if module.width_axis == axis else tensor)
    return {name: torch.cat(tensors) for name, tensors in parts.items()}


def _write_adapter(
    run: Path,
    chosen: Checkpoint,
    config: Any,
    lora: LoraConfig,
    factors: Mapping[str, Tensor],
    base: bytes,
    folder: Path,
) -> None:
    """Write the run of an imported adapter, with a copy of the base."""
    entry = Entry(size=len(base), sha256=hashlib.sha256(base).hexdigest())
    described = AdapterDescription(base=entry, lora=lora).model_dump_json(indent=1).encode()
    texts = _texts(chosen) | {"config.yaml": dump_yaml(config.model_copy(update={"adapter": lora})).encode()}
    card = f"# {run.absolute().name}\n\nAn adapter imported by attnkit from the folder `{folder}`.\n"
    files = {ADAPTER: to_bytes(factors), DESCRIPTION: described}
    write_new_run(run, texts, files, card, f"imported from {folder}", {MODEL: base})


def _texts(checkpoint: Checkpoint) -> dict[str, bytes]:
    return {name: checkpoint.read(name) for name in TEXT_FILES if name in checkpoint.manifest.files}


def merge_run(run: Path, folder: Path, *, checkpoint: str | None = None, adapter: Path | None = None) -> ExportResult:
    """Write a run whose weights are those of a run with its or another's adapter.

    Raises ``RunError`` if neither has an adapter, ``UsageError`` if the folder already contains a run.
    """
    check_is_new(folder)
    chosen, warnings = RunFolder(run).adapted(checkpoint, adapter)
    if not is_adapter(chosen):
        raise RunError("this run has no adapter to merge", where=str(run), help="name one: --adapter RUN")
    task = read_config_tree(chosen).get("task")
    config, tensors = _model(chosen, "clm" if task == "clm" else "translation")
    merged = to_bytes(read_tensors(chosen, MODEL, tensors))
    texts = _texts(chosen) | {"config.yaml": dump_yaml(config.model_copy(update={"adapter": None})).encode()}
    card = (
        f"# {folder.absolute().name}\n\nThe run `{adapter or run}`, its adapter merged into the weights by attnkit.\n"
    )
    write_new_run(folder, texts, {MODEL: merged}, card, f"merged from {adapter or run}")
    return ExportResult(folder, chosen.name, n_bytes_of(folder), tuple(warnings))


_CARD = """\
# An adapter in PEFT's format

LoRA, written by `attnkit export` from the checkpoint `{checkpoint}`. It adapts the model that `attnkit export BASE --to
huggingface` writes, for the run BASE that it was trained on:

```python
from peft import PeftModel
from transformers import AutoModelForSeq2SeqLM

model = PeftModel.from_pretrained(AutoModelForSeq2SeqLM.from_pretrained("base-hf"), ".")
```
"""
