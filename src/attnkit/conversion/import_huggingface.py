"""Import of encoders and of GPT-2 from Hugging Face folders as runs.

Translation models are in ``import_translator``. The names and shapes of all tensors are derived from ``config.json``
and from our model of that configuration before any tensor is read.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attnkit.checkpoints.weights import tensors_of, to_chunks
from attnkit.config import validate
from attnkit.conversion.import_translator import convert_translator
from attnkit.conversion.import_vocabulary import read_vocabulary
from attnkit.conversion.imported_run import ImportedModel, ImportResult, write_imported_run
from attnkit.conversion.new_run import check_is_new
from attnkit.conversion.vocabulary_files import Vocabulary, read_tree
from attnkit.data.labels import Labels
from attnkit.engine.dry_run import SkipWeightInit
from attnkit.engine.registry import TASKS
from attnkit.errors import RunError, UsageError
from attnkit.formats.huggingface import config as configs
from attnkit.formats.huggingface import layout, weights
from attnkit.formats.huggingface.translation_config import TRANSLATORS
from attnkit.io.safe_read import TensorEntry
from attnkit.models.bert import Bert, SequenceClassifier, SpanPredictor, TokenTagger
from attnkit.models.gpt import Gpt
from attnkit.models.language_config import BertConfig, GptConfig
from attnkit.models.positions import sinusoids
from attnkit.text.conll import holds_space

Model = Bert | Gpt | SequenceClassifier | TokenTagger | SpanPredictor
_TOGETHER = "check that config.json and the weights belong together"
_ROWS = 4096  #: words whose vectors are in memory at once
_DEFAULT_LABELS = {"0": "LABEL_0", "1": "LABEL_1"}  # defaults that config.json omits
_OUTPUT_WEIGHTS = {"cls.predictions.decoder.weight", "lm_head.decoder.weight", "lm_head.weight"}
_OUTPUT_WEIGHTS |= {"vocab_projector.weight", "generator_lm_head.weight", "decoder.weight"}
_PRETRAIN = "pretrain it before using its predictions"
_OUTPUT_BIASES = {"cls.predictions.decoder.bias", "cls.predictions.bias", "lm_head.decoder.bias", "lm_head.bias"}


@dataclass(frozen=True)
class ImportPlan:
    """Mapping of tensors in the file to tensors of our model."""

    described: configs.ForeignModel
    task: str
    labels: Labels | None  #: labels of a classifier or tagger
    links: list[layout.Link]
    names: Mapping[str, str]  #: current name of a tensor -> name in the file
    warnings: tuple[str, ...]

    @property
    def next_sentence(self) -> bool:
        """Whether the model has a next-sentence head."""
        return any(link.ours.startswith("next_sentence.") for link in self.links)

    @property
    def only_segment(self) -> str | None:
        """Name of the segment table of a BERT with one segment, None for other models."""
        if not isinstance(self.described.config, BertConfig) or self.described.config.n_segments > 1:
            return None
        if self.described.kind in ("distilbert", "modernbert"):  # they have no segments
            return None
        name = layout.PREFIXES[self.described.kind] + layout.SEGMENTS
        return name if name in self.names else layout.SEGMENTS


def import_huggingface(
    folder: Path,
    run: Path,
    *,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    prune_vocab: Sequence[Path] = (),
    source_prefix: str = "",
) -> ImportResult:
    """Import the model of a Hugging Face folder as a new run.

    ``src_lang`` and ``tgt_lang`` are the languages of a model with language codes: M2M100, NLLB-200, mBART-50. None:
    the run has no usual language of that side, and each call names it.
    ``prune_vocab`` are files of text: entries of a translation model that they do not use are left out.
    ``source_prefix`` is text that a T5 or mT5 is given before each source, such as ``translate English to German:``.

    Raises ``RunError`` if the model is unsupported or damaged, ``UsageError`` if ``run`` already contains a run.
    """
    if not folder.is_dir():
        raise _no_folder(folder)
    check_is_new(run)
    with configs.naming_types():
        tree = read_tree(folder / "config.json")
        if tree.get("model_type") in TRANSLATORS:
            given = (src_lang, tgt_lang), prune_vocab, source_prefix
            return write_imported_run(folder, run, convert_translator(folder, tree, *given))
        described = configs.read(tree, str(folder / "config.json"))
        if source_prefix:
            what = "this model does not translate"
            raise UsageError(what, where="--source-prefix", help="leave it out; it is for t5 and mt5")
        if src_lang is not None or tgt_lang is not None:
            help = "leave them out; M2M100, NLLB-200 and mBART-50 take them"
            raise UsageError("this model has no language codes", where="--src-lang, --tgt-lang", help=help)
        if prune_vocab:
            what = f"vocabularies of {described.kind} cannot be pruned"
            raise UsageError(what, where="--prune-vocab", help=f"leave it out; it is for {', '.join(TRANSLATORS)}")
        return write_imported_run(folder, run, _convert(folder, tree, described))


def _no_folder(folder: Path) -> RunError:
    """Return the error for a folder that is missing, e.g. a name of the hub."""
    what, help = f"no such folder: {folder}", "use a folder written by save_pretrained"
    if folder.exists():
        what, help = f"{folder} is not a folder", "name the folder that holds config.json and the weights"
    elif re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", str(folder)):
        help = f"nothing is downloaded; do it first: hf download {folder} --local-dir {folder.name}"
    return RunError(what, help=help)


def _convert(folder: Path, tree: Mapping[str, Any], described: configs.ForeignModel) -> ImportedModel:
    """Convert an encoder or generator; raise ``RunError`` if it is damaged."""
    path = weights.find_weights(folder)
    with weights.opened(path) as opened:
        plan = _plan(described, tree, opened.entries, str(path))
        opened.check_size({plan.names[name] for link in plan.links for name in link.theirs})
        vocabulary = read_vocabulary(folder, described.kind, described.vocab_size)
        config = _run_config(folder, plan, vocabulary)
        torch.manual_seed(config.seed)
        size = vocabulary.tokenizer.vocab_size
        with torch.device("meta"), SkipWeightInit():
            names = tensors_of(_build(plan, config.model, size)).keys()
        # What is read for all tensors needs no initial values, and memory that is not written is not taken.
        with SkipWeightInit() if names <= {link.ours for link in plan.links} else nullcontext():
            model = _build(plan, config.model, size)
        _fill(model, plan, opened, vocabulary.order)
    texts = {"tokenizer.json": vocabulary.tokenizer.to_json().encode()}
    if plan.labels is not None:
        texts["labels.json"] = plan.labels.to_bytes()
    content, n_parameters = (
        partial(to_chunks, tensors_of(model)),
        sum(parameter.numel() for parameter in model.parameters()),
    )
    command = "embed" if any(_PRETRAIN in warning for warning in plan.warnings) else None
    return ImportedModel(plan.task, config, texts, content, n_parameters, size, plan.warnings, command=command)


def _plan(
    described: configs.ForeignModel, tree: Mapping[str, Any], entries: Mapping[str, TensorEntry], where: str
) -> ImportPlan:
    """Plan the import from names and shapes; raise ``RunError`` if they do not match."""
    # The first BERT checkpoints call the LayerNorm parameters gamma and beta.
    old = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    names = {re.sub(r"LayerNorm\.(gamma|beta)", lambda match: old[match[0]], name): name for name in entries}
    config, kind = described.config, described.kind
    prefix = layout.PREFIXES[kind]
    prefix = prefix if any(name.startswith(prefix) for name in names) else ""
    body = (
        layout.bert_body(config, prefix) if isinstance(config, BertConfig) else layout.gpt_links(config, kind, prefix)
    )
    warnings: list[str] = []
    if isinstance(config, BertConfig) and (head := _find_head(tree, config, kind, names)) is not None:
        task, labels = head
        links = layout.with_prefix("encoder", body) + layout.head_of(task, kind, config)
    else:
        task, labels, links = "mlm" if isinstance(config, BertConfig) else "clm", None, body
        for missing, part in _pretraining_parts(described, names):
            if {name for link in part for name in link.theirs} <= names.keys():
                links = links + part
            else:
                warnings.append(missing)
    plan = ImportPlan(described, task, labels, links, names, ())
    changes = {}
    if isinstance(config, BertConfig):
        changes = {"max_length": config.max_length + described.skipped, "next_sentence": plan.next_sentence}
    with torch.device("meta"), SkipWeightInit():  # shapes only, with the file's numbers of words and positions
        outline = _build(plan, config.model_copy(update=changes), described.vocab_size).state_dict()
    expected = layout.their_shapes(links, outline)
    if plan.only_segment is not None:
        expected[plan.only_segment] = (1, config.embedding_width)
    for name, shape in expected.items():
        if name not in names:
            what = f"the weights lack '{name}'"
        elif (entry := entries[names[name]]).shape != shape:
            what = f"'{name}' has shape {list(entry.shape)}, but config.json implies {list(shape)}"
        elif entry.dtype not in weights.DTYPES:
            what = f"'{name}' has the unsupported dtype {entry.dtype}"
        else:
            continue
        raise RunError(what, where=where, help=_TOGETHER)
    # Ignored: copies of tensors that are read, and buffers.
    redundant = _OUTPUT_BIASES | (_OUTPUT_WEIGHTS if config.tie_embeddings else set())
    left = sorted(names.keys() - expected.keys() - redundant)
    left = [name for name in left if not layout.HARMLESS.fullmatch(name)]
    if described.kind == "distilbert" and config.positions == "sinusoidal":
        left = [name for name in left if name != prefix + layout.POSITIONS["bert"]]  # checked when weights are read
    strange = [name for name in left if not layout.OTHER_HEADS.fullmatch(name)]
    if strange:  # not part of a known head
        what = f"unexpected weight '{strange[0][:80]}' for a {kind} with this config.json"
        raise RunError(what, where=where, help=_TOGETHER)
    heads = sorted({name.split(".")[0] for name in left} - {"bert", "roberta", "roformer"})
    warnings += [f"the head '{name}' was not imported" for name in heads]
    return replace(plan, warnings=tuple(warnings))


def _find_head(
    tree: Mapping[str, Any], config: BertConfig, kind: str, names: Mapping[str, str]
) -> tuple[str, Labels | None] | None:
    """Return the task and any labels of a fine-tuned head, None if unsupported."""
    architectures = tree.get("architectures")
    name = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    task = next((task for task, end in layout.HEADS.items() if name.endswith(f"For{end}")), None)
    if task is None:
        return None
    if not {name for link in layout.head_of(task, kind, config) for name in link.theirs} <= names.keys():
        return None
    if task == "question-answering":
        return task, None
    if tree.get("problem_type") in ("regression", "multi_label_classification"):  # not single-label classification
        return None
    named = tree.get("id2label", _DEFAULT_LABELS)
    if not isinstance(named, dict) or sorted(named) != sorted(map(str, range(len(named)))):
        return None
    listed = {"labels": [named[str(i)] for i in range(len(named))]}
    try:
        labels = Labels.parse(json.dumps(listed).encode(), "config.json")
    except RunError:
        return None
    if task == "token-classification" and any(map(holds_space, labels.labels)):  # tags are space-separated
        return None
    return task, labels


def _pretraining_parts(model: configs.ForeignModel, names: Mapping[str, str]) -> list[tuple[str, list[layout.Link]]]:
    """Return the optional pretraining heads as (warning if missing, links)."""
    config, kind = model.config, model.kind
    if isinstance(config, GptConfig):
        head, lacking = layout.gpt_head(config), "output layer"
    else:
        head, lacking = layout.bert_head(config, kind), "masked-LM head"
        for place, link in enumerate(head):  # the output bias has two names, and a file may contain either
            if link.ours == "output.bias" and link.theirs[0] not in names:
                head[place] = layout.Link(link.ours, (layout.other_bias(link.theirs[0]),))
    parts = [(f"the model has no {lacking}: {_PRETRAIN}", head)]
    if kind == "bert" and "cls.seq_relationship.weight" in names:
        parts.append(("the pooler is incomplete", layout.next_sentence()))
    return parts


def _build(plan: ImportPlan, config: BertConfig | GptConfig, vocab_size: int) -> Model:
    """Build the model with newly initialized weights."""
    if isinstance(config, GptConfig):
        return Gpt(config, vocab_size)
    if plan.task == "question-answering":
        return SpanPredictor(config, vocab_size)
    if plan.labels is None:
        return Bert(config, vocab_size)
    kind = SequenceClassifier if plan.task == "text-classification" else TokenTagger
    return kind(config, vocab_size, len(plan.labels.labels))


def _run_config(folder: Path, plan: ImportPlan, vocabulary: Vocabulary) -> Any:
    """Return the run configuration that matches the imported weights."""
    spec, config = TASKS[plan.task], plan.described.config
    model = config.model_dump(mode="json")
    data: dict[str, Any] = {"files": [str(folder)]}
    if isinstance(config, BertConfig):
        model |= {"separators": vocabulary.separators, "next_sentence": plan.next_sentence}
    if plan.task in ("mlm", "clm"):
        data["sequence_length"] = min(512, config.max_length)
    tree = spec.preset("base", config.kind) | {
        "task": plan.task,
        "data": data,
        "model": model,
        "vocabulary": vocabulary.tokenizer.config.model_dump(mode="json"),
        "preset": "base",
    }
    try:
        return validate(spec.config, tree)
    except UsageError as error:
        raise RunError(f"the model cannot be imported: {error.what}", where=str(folder / "config.json")) from error


def _fill(model: Model, plan: ImportPlan, opened: weights.TensorFile, order: list[int | None]) -> None:
    """Copy the imported weights into our model."""
    own, pretrained = tensors_of(model), plan.task in ("mlm", "clm")
    near = "" if pretrained else "encoder."
    positions = f"{near}places.table.table"
    with torch.no_grad():
        for link in plan.links:
            of_words = link.ours == f"{near}embedding.weight" or (pretrained and link.ours.startswith("output."))
            if of_words:
                _fill_words(own[link.ours], link, plan, opened, order)
                continue
            tensor = link.join({name: opened.read(plan.names[name]) for name in link.theirs})
            if link.ours == positions:
                tensor = tensor[plan.described.skipped :]
            own[link.ours].copy_(tensor)
        if plan.described.kind == "distilbert" and plan.described.config.positions == "sinusoidal":
            _check_sinusoids(plan, opened)
        if plan.only_segment is not None:
            segment = opened.read(plan.names[plan.only_segment])
            if plan.described.config.positions == "learned":
                own[positions].add_(segment)  # adding it to every token equals adding it to every position
            elif bool(segment.any()):
                what = "RoFormer with one non-zero segment embedding is not supported"
                raise RunError(what, where="type_vocab_size", help="supported: two segments, or one of zeros")


def _check_sinusoids(plan: ImportPlan, opened: weights.TensorFile) -> None:
    """Check the positions of DistilBERT; raise ``RunError`` if not sinusoidal."""
    near = layout.PREFIXES[plan.described.kind] + layout.POSITIONS["bert"]
    name = next((name for name in (near, layout.POSITIONS["bert"]) if name in plan.names), None)
    if name is None:
        return
    table, config = opened.read(plan.names[name]), plan.described.config
    like = torch.empty(0, config.d_model)
    if table.shape != (config.max_length, config.d_model) or not torch.allclose(
        table, sinusoids(0, len(table), like), rtol=0, atol=1e-5
    ):
        what = f"'{name}' has other values than the sinusoids of config.json"
        raise RunError(what, where="sinusoidal_pos_embds", help="set sinusoidal_pos_embds to false")


def _fill_words(
    ours: torch.Tensor, link: layout.Link, plan: ImportPlan, opened: weights.TensorFile, order: list[int | None]
) -> None:
    """Copy rows of words (V,) or (V, D), in the order of our ids, a part at a time."""
    (name,) = (plan.names[theirs] for theirs in link.theirs)
    if None in order:
        # A missing entry gets the mean of all rows: by Jensen's inequality its probability is at most 1 / V.
        n_rows = opened.entries[name].shape[0]
        parts = (range(first, min(n_rows, first + _ROWS)) for first in range(0, n_rows, _ROWS))
        total = torch.stack([opened.read_rows(name, part).double().sum(0) for part in parts]).sum(0)
        ours[torch.tensor([id is None for id in order])] = (total / n_rows).float()
    places = [(place, id) for place, id in enumerate(order) if id is not None]
    for first in range(0, len(places), _ROWS):
        chosen = places[first : first + _ROWS]
        ours[torch.tensor([place for place, _ in chosen])] = opened.read_rows(name, [id for _, id in chosen])
