"""Adapters to and from PEFT's format, and runs with merged weights.

PEFT (``adapter_model.safetensors``, ``adapter_config.json``) names the modules of the model of transformers that the
base is exported to, or was imported from.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor

from attnkit.checkpoints.adapters import ADAPTER, DESCRIPTION, AdapterDescription, adapter_layout, is_adapter
from attnkit.checkpoints.checkpoint import MODEL, Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import read_tensors, tensors_of, to_bytes
from attnkit.config import dump_yaml
from attnkit.conversion.export_ctranslate2 import ExportResult, check_empty, n_bytes_of, new_folder, open_exportable
from attnkit.conversion.imported_run import ImportResult
from attnkit.conversion.new_run import check_is_new, write_new_run
from attnkit.conversion.vocabulary_files import read_tree
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_labels, read_run_config
from attnkit.engine.dry_run import SkipWeightInit
from attnkit.engine.registry import TASKS
from attnkit.engine.task import task_of
from attnkit.engine.vocabularies import read_tokenizer, read_vocabularies
from attnkit.errors import RunError
from attnkit.formats.exportable import check_huggingface, coded_kind
from attnkit.formats.huggingface import layout, peft, translation_layout, weights
from attnkit.formats.huggingface.llama import is_llama
from attnkit.formats.huggingface.t5 import is_t5
from attnkit.io import atomic
from attnkit.io.safe_read import Entry
from attnkit.models.lora import MAX_ALPHA, MAX_RANK, LoraConfig, adapted_blocks

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
_TYPES = {
    "translation": "SEQ_2_SEQ_LM",
    "clm": "CAUSAL_LM",
    "mlm": None,
    "text-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
}  #: task -> type of task in PEFT
_CLASSES = {
    "translation": "AutoModelForSeq2SeqLM",
    "clm": "AutoModelForCausalLM",
    "mlm": "AutoModelForMaskedLM",
    **{task: f"AutoModelFor{end}" for task, end in layout.HEADS.items()},
}  #: task -> class in transformers
_LABELED = ("text-classification", "token-classification")
_ONE_RANK = "supported: LoRA of one rank, without biases"
_WITHOUT_HEAD = """\
save the base with a head of as many labels in transformers (save_pretrained), import that"""
_SAME = "supported: the model that it was trained on as --base, the same maps in all layers"


def _model(checkpoint: Checkpoint) -> tuple[Any, dict[str, Tensor]]:
    """Return the configuration of a run, and the tensors of its model, not read."""
    config = read_run_config(checkpoint)
    with torch.device("meta"), SkipWeightInit():
        return config, tensors_of(task_of(config).model_for_checkpoint(checkpoint, config))


def _check(config: Any) -> None:
    """Raise ``RunError`` unless transformers and PEFT support a run and its task."""
    check_huggingface(config)
    if config.task == "mlm" and config.generator is not None:
        help = "fine-tune the run: PEFT takes the adapters of its fine-tuned encoder"
        raise RunError("PEFT has no model with both parts of an ELECTRA", where="objective", help=help)


def _links(checkpoint: Checkpoint, config: Any) -> list[layout.Link]:
    """Return the links to the model of transformers that a run is exported to."""
    model = config.model
    if config.task == "translation":
        named = "t5" if is_t5(model) else coded_kind(model) or "marian"  # the names of mT5 are those of T5
        return translation_layout.LINKS[named](model)
    if config.task == "clm":
        return layout.gpt_links(model, "llama" if is_llama(model) else "gpt2") + layout.gpt_head(model)
    origin = read_tokenizer(checkpoint).origin
    kind = layout.body_kind(model) if origin is None or not layout.fits(model, origin.model) else origin.model
    body = layout.bert_body(model, layout.PREFIXES[kind])
    if config.task == "mlm":
        return body + layout.bert_head(model, kind)
    return layout.with_prefix("encoder", body) + layout.head_of(config.task, kind, model)


def _heads(names: Iterable[str]) -> list[str]:
    """Return the modules of a head, given the names of its tensors in transformers."""
    prefixes = tuple(layout.PREFIXES.values())
    bare = (name.partition(".")[2] if name.startswith(prefixes) else name for name in names)
    return list(dict.fromkeys(name.partition(".")[0] for name in bare))


def export_peft(run: Path, folder: Path, *, checkpoint: str | None = None) -> ExportResult:
    """Export a run's adapter in PEFT's format, for the base exported to transformers.

    Raises ``RunError`` if the run has no adapter or transformers does not support its model, ``UsageError`` if the
    folder is not empty.
    """
    check_empty(folder)
    chosen, task, warnings = open_exportable(run, checkpoint, _check)
    if not is_adapter(chosen):
        raise RunError("this run has no adapter", where=str(run), help="train one: --set adapter.kind=lora")
    config, tensors = _model(chosen)
    described = adapter_layout(chosen, _shapes(tensors))
    held = {name: torch.empty(shape, device="meta") for name, shape in described.shapes.items()}
    file, links = read_tensors(chosen, ADAPTER, held), _links(chosen, config)
    modules = peft.modules_of(links, _shapes(tensors), described.blocks)
    pairs = peft.to_pairs(modules, _shapes(tensors), described.blocks, file)
    made = {module.tensor(name): t for module in modules for name, t in zip("AB", pairs[module.name], strict=True)}
    heads = layout.to_theirs([link for link in links if link.ours in described.whole], file)
    made |= {f"{peft.PREFIX}{name}": tensor for name, tensor in heads.items()}
    known = {name.removesuffix(".weight") for link in links for name in link.theirs if name.endswith(".weight")}
    ranks = {name: len(a) for name, (a, _) in pairs.items()}
    tree = {"task_type": _TYPES[task], **peft.peft_tree(modules, known - ranks.keys(), described.lora, ranks)}
    tree["modules_to_save"] = _heads(heads) or None
    with new_folder(folder) as temporary:
        atomic.write_new_file(temporary / CONFIG, (json.dumps(tree, indent=2) + "\n").encode())
        content = {name: tensor.contiguous() for name, tensor in made.items()}
        atomic.write_new_file(temporary / TENSORS, safetensors.torch.save(content, metadata={"format": "pt"}))
        n_labels = len(read_labels(chosen).labels) if task in _LABELED else None
        given = "" if n_labels is None else f", num_labels={n_labels}"
        card = _CARD.format(checkpoint=chosen.name, model=_CLASSES[task], labels=given)
        atomic.write_new_file(temporary / "README.md", card.encode())
    return ExportResult(folder, chosen.name, n_bytes_of(folder), tuple(warnings))


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def import_peft(folder: Path, base: Path, run: Path) -> ImportResult:
    """Import an adapter in PEFT's format as a run, with the weights of ``base``.

    Raises ``RunError`` if the adapter is damaged, of another kind or does not fit the base, ``UsageError`` if ``run``
    already contains a run.
    """
    check_is_new(run)
    chosen, task, warnings = open_exportable(base, None, _check)
    config, tensors = _model(chosen)
    described = _read_config(folder / CONFIG)
    if not (folder / TENSORS).exists():
        raise RunError(f"no {TENSORS} in {folder}", help="write it with save_pretrained of a current PEFT")
    lora, factors, head = _read_adapter(folder / TENSORS, described, _links(chosen, config), tensors, task)
    merged = to_bytes(read_tensors(chosen, MODEL, tensors))
    entry = Entry(size=len(merged), sha256=hashlib.sha256(merged).hexdigest())
    text = AdapterDescription(base=entry, lora=lora, whole=tuple(head)).model_dump_json(indent=1).encode()
    texts = _texts(chosen) | {"config.yaml": dump_yaml(config.model_copy(update={"adapter": lora})).encode()}
    card = f"# {run.absolute().name}\n\nAn adapter imported by attnkit from the folder `{folder}`.\n"
    files = {ADAPTER: to_bytes(factors | head), DESCRIPTION: text}
    write_new_run(run, texts, files, card, f"imported from {folder}", {MODEL: merged})
    n_trained = sum(tensor.numel() for tensor in (*factors.values(), *head.values()))
    return ImportResult(run, TASKS[task].command, n_trained, read_vocabularies(chosen).tgt.vocab_size, tuple(warnings))


def _read_config(path: Path) -> peft.PeftConfig:
    """Return ``adapter_config.json``; raise ``RunError`` for other kinds of adapters."""
    help = _ONE_RANK
    try:
        described = peft.PeftConfig.model_validate(read_tree(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"this adapter is not supported: {'.'.join(map(str, first['loc']))[:80]}: {first['msg']}"
        raise RunError(what, where=str(path), help=help) from error
    if not described.patterns_are_names():
        what = "this adapter is not supported: rank_pattern or alpha_pattern has expressions, not names of modules"
        raise RunError(what, where=str(path), help=help)
    return described


def _read_adapter(
    path: Path, described: peft.PeftConfig, links: Sequence[layout.Link], tensors: Mapping[str, Tensor], task: str
) -> tuple[LoraConfig, dict[str, Tensor], dict[str, Tensor]]:
    """Return settings, factors and head; raise ``RunError`` if they do not fit."""
    shapes = _shapes(tensors)
    everything = peft.modules_of(links, shapes, adapted_blocks(shapes, LoraConfig()))
    heads = _saved_heads(described, links, task, path)
    with weights.opened(path) as file:
        # Older files have the name of the adapter before "weight".
        stored = {name.replace(".default.weight", ".weight"): name for name in file.entries}
        present = {part.map for module in everything if module.tensor("A") in stored for part in module.parts}
        modules = [module for module in everything if any(part.map in present for part in module.parts)]
        expected = {f"{peft.PREFIX}{name}": shape for name, shape in layout.their_shapes(heads, tensors).items()}
        for module in modules:
            rank = described.rank(module.name)
            expected |= {module.tensor("A"): (rank, module.shape[1]), module.tensor("B"): (module.shape[0], rank)}
        if not modules:
            what = f"it has none of the base's maps, but e.g. '{min(stored, default='')[:120]}'"
            raise RunError(f"the adapter does not fit the base: {what}", where=str(path), help=_SAME)
        _check_tensors(file, stored, expected, str(path))
        a, b = ({m.name: file.read(stored[m.tensor(factor)]) for m in modules} for factor in "AB")
        head = {
            link.ours: link.join({name: file.read(stored[f"{peft.PREFIX}{name}"]) for name in link.theirs})
            for link in heads
        }
    pairs = peft.split_pairs(modules, {name: (a[name], b[name]) for name in a})
    lora = _settings(described, modules, pairs, path)
    own = peft.modules_of(links, shapes, adapted_blocks(shapes, lora))
    if lacking := [m for m in own if not {part.map for part in m.parts} <= pairs[m.name].keys()]:
        what = f"'{lacking[0].name}' has no adapter of a map that other layers have"
        raise RunError(f"the adapter does not fit the base: {what}", where=str(path), help=_SAME)
    return lora, peft.from_pairs(own, shapes, pairs), head


def _saved_heads(described: peft.PeftConfig, links: Sequence[layout.Link], task: str, path: Path) -> list[layout.Link]:
    """Return the links of heads that an adapter replaces, of fine-tuned models."""
    heads = [link for link in links if task in layout.HEADS and not link.ours.startswith("encoder.")]
    if described.modules_to_save and not heads:
        what = "this adapter is not supported: modules_to_save: the base has no head that it could replace"
        raise RunError(what, where=str(path.with_name(CONFIG)), help=_WITHOUT_HEAD)
    return [link for link in heads if described.saves(_heads(link.theirs)[0])]


def _check_tensors(
    file: weights.TensorFile, stored: Mapping[str, str], expected: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Raise ``RunError`` unless a file has exactly the expected tensors."""
    if odd := sorted(expected.keys() ^ stored.keys()):
        what = f"'{odd[0][:120]}' is {'missing' if odd[0] in expected else 'unexpected'}"
        raise RunError(f"the adapter does not fit the base: {what}", where=where, help=_SAME)
    for name, shape in expected.items():
        entry = file.entries[stored[name]]
        if entry.shape != shape:
            what = f"'{name}' is {[*entry.shape]}, not {[*shape]}"
            raise RunError(f"the adapter does not fit the base: {what}", where=where)
        if entry.dtype not in weights.DTYPES:
            what = f"'{name}' has the unsupported dtype {entry.dtype}"
            raise RunError(f"the adapter does not fit the base: {what}", where=where)
    file.check_size(stored.values())


def _settings(
    described: peft.PeftConfig, modules: list[peft.Module], pairs: Mapping[str, Mapping[Any, peft.Pair]], path: Path
) -> LoraConfig:
    """Return the settings of an adapter; raise ``RunError`` if modules differ in them."""
    ranks = {len(a) for maps in pairs.values() for a, _ in maps.values()}
    scales = [described.scale(module.name) for module in modules]
    rank = max(ranks)
    alpha = scales[0] * rank if described.use_rslora or rank != described.r else float(described.lora_alpha)
    if len(ranks) > 1 or max(scales) - min(scales) > 1e-9 * max(scales):
        what = f"modules differ in rank ({', '.join(map(str, sorted(ranks)))}) or in alpha / rank"
        raise RunError(f"this adapter is not supported: {what}", where=str(path.with_name(CONFIG)), help=_ONE_RANK)
    if rank > MAX_RANK or alpha > MAX_ALPHA:
        what = f"rank {rank} is above {MAX_RANK}, or alpha {alpha:g} above {MAX_ALPHA:g}"
        raise RunError(f"this adapter is not supported: {what}", where=str(path.with_name(CONFIG)), help=_ONE_RANK)
    maps = tuple(name for name in peft.MODULE_MAPS if any(name in own for own in pairs.values()))
    return LoraConfig(rank=rank, alpha=alpha, dropout=described.lora_dropout, maps=maps)


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
    config, tensors = _model(chosen)
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
from transformers import {model}

model = PeftModel.from_pretrained({model}.from_pretrained("base-hf"{labels}), ".")
```
"""
