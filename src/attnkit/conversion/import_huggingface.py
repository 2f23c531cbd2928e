"""Take a BERT, RoBERTa, RoFormer or GPT-2 from a Hugging Face folder: a run that has yet to train, ready to be used.

Weights come from safetensors alone. What is to be read is known by name and shape before any of it is: from
``config.json``, and from the outline of our own model of that configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnkit.checkpoints.run_folder import RunFolder, check_target_dir
from attnkit.checkpoints.weights import tensors_of
from attnkit.config import validate
from attnkit.conversion.import_heads import Config, Head, find_head, write_imported
from attnkit.conversion.import_vocabulary import Vocabulary, read_tree, read_vocabulary
from attnkit.engine.dry_run import SkipWeightInit
from attnkit.engine.registry import TASKS
from attnkit.errors import RunError, UsageError
from attnkit.formats.huggingface import config as configs
from attnkit.formats.huggingface import layout, weights
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.heads import SequenceClassifier, SpanPredictor, TokenClassifier
from attnkit.models.language_config import BertConfig, GptConfig
from attnkit.tasks.language_modeling.config import ClmConfig, MlmConfig, clm_preset, mlm_preset

Model = Bert | Gpt | SequenceClassifier | TokenClassifier | SpanPredictor
_Part = tuple[str, list[layout.Link]]
_TOGETHER = "check that config.json and the weights belong together"
PICKLES = ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack")


@dataclass(frozen=True)
class Imported:
    """What became of a folder."""

    path: Path
    command: str
    """What takes such a run."""
    n_parameters: int
    vocab_size: int
    warnings: tuple[str, ...]
    """What the folder lacked, and what it held that was left there."""


@dataclass(frozen=True)
class _Plan:
    """Which of their tensors are read for which of ours."""

    described: configs.ForeignModel
    links: list[layout.Link]
    names: Mapping[str, str]
    """What a tensor is called today -> in the file."""
    warnings: tuple[str, ...]
    head: Head | None = None
    """What it was fine-tuned for, if it was."""


def import_huggingface(folder: Path, run: Path) -> Imported:
    """Make a run of the model in a folder.

    Raises:
        RunError: the folder holds no model that we have, or one that is damaged.
        UsageError: there is a run already.
    """
    if not folder.is_dir():
        raise RunError(f"no folder {folder}", help="name a folder that save_pretrained wrote")
    check_target_dir(run)
    if RunFolder(run).exists():
        raise UsageError("there is a run here already", where=str(run), help="name a new folder with -o")
    tree = read_tree(folder / "config.json")
    described = configs.read(tree, str(folder / "config.json"))
    path = _weights_path(folder)
    with weights.opened(path) as opened:
        plan = _plan(described, tree, opened.entries, str(path))
        vocabulary = read_vocabulary(folder, described.kind, described.vocab_size)
        config = _run_config(folder, plan, vocabulary)
        torch.manual_seed(config.seed)
        size = vocabulary.tokenizer.vocab_size
        model = _build(plan.head, config.model, size)
        _fill(model, plan, opened, vocabulary.order)
    texts = {"tokenizer.json": vocabulary.tokenizer.to_json().encode(), **(plan.head.texts if plan.head else {})}
    write_imported(run, config, texts, model, folder)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return Imported(run, TASKS[config.task].command, n_parameters, size, plan.warnings)


def _weights_path(folder: Path) -> Path:
    path = folder / "model.safetensors"
    if path.exists():
        return path
    pickles = [name for name in PICKLES if (folder / name).exists()]
    if pickles:
        help = "write it anew: AutoModel.from_pretrained(DIR).save_pretrained(DIR, safe_serialization=True)"
        raise RunError(f"{pickles[0]} may run code when it is read; only safetensors are", where=str(folder), help=help)
    if (folder / "model.safetensors.index.json").exists():
        help = 'write it as one file: save_pretrained(DIR, max_shard_size="100GB")'
        raise RunError("the weights lie in several files", where=str(folder), help=help)
    raise RunError(f"no model.safetensors in {folder}", help="name a folder that save_pretrained wrote")


def _plan(
    described: configs.ForeignModel, tree: Mapping[str, Any], entries: Mapping[str, weights.Entry], where: str
) -> _Plan:
    """Decide what is read, from names and shapes alone. Raises ``RunError`` where they are not what they should be."""
    names = {layout.today(name): name for name in entries}
    head = find_head(tree, described, names)
    body, parts = _parts(described, names)
    links, warnings = list(body), list[str]()
    for what, part in parts if head is None else ():
        if part and {name for link in part for name in link.theirs} <= names.keys():
            links += part
        elif part:
            warnings.append(what)
    if head is not None:
        links = layout.within("encoder", links) + head.links
    expected = layout.their_shapes(links, _outline(described, head, _has_next_sentence(links)))
    if isinstance(described.config, BertConfig) and described.config.n_segments == 1:
        expected[_segments(described, names)] = (1, described.config.d_model)
    _refuse_wrong(expected, {name: entries[names[name]] for name in names}, where)
    left = [name for name in names.keys() - expected.keys() if not _is_read_already(name, described)]
    warnings += _told(sorted(left), described, where)
    return _Plan(described, links, names, tuple(warnings), head)


def _told(left: list[str], described: configs.ForeignModel, where: str) -> list[str]:
    """Return what is said of tensors that stay where they are. Raises ``RunError`` for one that belongs to no head."""
    strange = [name for name in left if not layout.OTHER_HEADS.fullmatch(name)]
    if strange:
        what = f"the weights hold '{strange[0][:80]}', which no {described.kind} of this config.json has"
        raise RunError(what, where=where, help=_TOGETHER)
    heads = sorted({name.split(".")[0] for name in left} - {"bert", "roberta", "roformer"})
    return [f"its head '{head}' was left there" for head in heads]


def _parts(described: configs.ForeignModel, names: Mapping[str, str]) -> tuple[list[layout.Link], list[_Part]]:
    """Return the links of the body, and those of parts that a folder may lack, with what is said then."""
    prefix = layout.PREFIXES[described.kind]
    prefix = prefix if any(name.startswith(prefix) for name in names) else ""
    config = described.config
    if isinstance(config, GptConfig):
        said = "it has no output layer: its guesses make no sense before it is pretrained"
        return layout.gpt_body(config, prefix), [(said, layout.gpt_head(config))]
    head = layout.roberta_head(config) if described.kind == "roberta" else layout.bert_head(config)
    head = [_renamed_bias(link, names) for link in head]
    said = "it has no head that predicts words: its guesses make no sense before it is pretrained"
    follows = layout.next_sentence() if described.kind == "bert" and "cls.seq_relationship.weight" in names else []
    return layout.bert_body(config, prefix), [(said, head), ("its pooler is not complete", follows)]


def _renamed_bias(link: layout.Link, names: Mapping[str, str]) -> layout.Link:
    """Return the link of a bias by its other name, where the file has only that one."""
    if link.ours != "output.bias" or link.theirs[0] in names:
        return link
    return layout.Link(link.ours, (layout.other_bias(link.theirs[0]),))


def _is_read_already(name: str, described: configs.ForeignModel) -> bool:
    """Return whether a tensor says nothing new: it is the same as another by which it is read, or no weight."""
    weight = name in ("cls.predictions.decoder.weight", "lm_head.decoder.weight", "lm_head.weight")
    bias = name in ("cls.predictions.decoder.bias", "cls.predictions.bias", "lm_head.decoder.bias", "lm_head.bias")
    return (weight and described.config.tie_embeddings) or bias or layout.HARMLESS.fullmatch(name) is not None


def _has_next_sentence(links: list[layout.Link]) -> bool:
    return any(link.ours.startswith("next_sentence.") for link in links)


def _outline(described: configs.ForeignModel, head: Head | None, next_sentence: bool) -> dict[str, Tensor]:
    """Return our tensors without numbers, of as many words and positions as theirs have."""
    config, changes = described.config, {}
    if isinstance(config, BertConfig):
        changes = {"max_length": config.max_length + described.skipped, "next_sentence": next_sentence}
    with torch.device("meta"), SkipWeightInit():
        return _build(head, config.model_copy(update=changes), described.vocab_size).state_dict()


def _build(head: Head | None, config: BertConfig | GptConfig, vocab_size: int) -> Model:
    """Return a model of fresh weights."""
    if isinstance(config, GptConfig):
        return Gpt(config, vocab_size)
    return Bert(config, vocab_size) if head is None else head.build(config, vocab_size)


def _segments(described: configs.ForeignModel, names: Mapping[str, str]) -> str:
    prefix = layout.PREFIXES[described.kind]
    return prefix + layout.SEGMENTS if prefix + layout.SEGMENTS in names else layout.SEGMENTS


def _refuse_wrong(expected: Mapping[str, layout.Shape], entries: Mapping[str, weights.Entry], where: str) -> None:
    for name, shape in expected.items():
        if name not in entries:
            what = f"the weights lack '{name}'"
        elif entries[name].shape != shape:
            what = f"'{name}' is {list(entries[name].shape)}, and by config.json {list(shape)}"
        elif entries[name].dtype not in weights.DTYPES:
            what = f"'{name}' is of the type {entries[name].dtype}"
        else:
            continue
        raise RunError(what, where=where, help=_TOGETHER)


def _run_config(folder: Path, plan: _Plan, vocabulary: Vocabulary) -> Config:
    """Return the configuration of a run that would have had these weights."""
    model = plan.described.config.model_dump(mode="json")
    words = vocabulary.tokenizer.config.model_dump(mode="json")
    mlm = isinstance(plan.described.config, BertConfig)
    if mlm:
        model["separators"] = vocabulary.separators
    try:
        if plan.head is not None:
            return plan.head.configure(folder, model, words)
        tree = (mlm_preset if mlm else clm_preset)("base", plan.described.config.kind)
        tree |= {
            "data": {"files": [str(folder)], "sequence_length": min(512, plan.described.config.max_length)},
            "model": {**model, "next_sentence": _has_next_sentence(plan.links)} if mlm else model,
            "vocabulary": words,
            "preset": "base",
        }
        return validate(MlmConfig, tree) if mlm else validate(ClmConfig, tree)
    except UsageError as error:
        raise RunError(f"the model cannot be imported: {error.what}", where=str(folder / "config.json")) from error


def _fill(model: Model, plan: _Plan, opened: weights.TensorFile, order: list[int | None]) -> None:
    """Copy their numbers into our places."""
    own, described, near = tensors_of(model), plan.described, "" if plan.head is None else "encoder."
    words = [f"{near}embedding.weight", *(["output.weight", "output.bias"] if plan.head is None else [])]
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        **dict.fromkeys(words, lambda tensor: _reordered(tensor, order)),
        f"{near}places.table.table": lambda tensor: tensor[described.skipped :],
    }
    with torch.no_grad():
        for link in plan.links:
            found = {name: opened.read(plan.names[name]) for name in link.theirs}
            change = changes.get(link.ours)
            tensor = link.join(found)
            own[link.ours].copy_(tensor if change is None else change(tensor))
        if isinstance(described.config, BertConfig) and described.config.n_segments == 1:
            segment = opened.read(plan.names[_segments(described, plan.names)])
            if described.config.positions == "learned":
                own[f"{near}places.table.table"].add_(segment)  # every token has this vector; so has every position
            elif bool(segment.any()):
                what = "attnkit has no roformer whose only segment has a vector"
                raise RunError(what, where="type_vocab_size", help="it takes two segments, or one of zeros")


def _reordered(rows: Tensor, order: list[int | None]) -> Tensor:
    """Return their rows (V,) or (V, D) in the order of our ids.

    Where they have no such entry it gets the mean of all: by Jensen's inequality it is then never likelier than 1 / V.
    """
    found = rows[torch.tensor([0 if id is None else id for id in order])]
    found[torch.tensor([id is None for id in order])] = rows.mean(0)
    return found
