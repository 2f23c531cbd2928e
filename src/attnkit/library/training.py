"""Training by calls: one function per training command. Torch-free until a call.

A call takes what its command takes: the files and flags as arguments, a YAML file or a configuration as ``config``, and
any key as ``settings``. Calling it again resumes the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from attnkit.config import flatten
from attnkit.config.arguments import Count, checked
from attnkit.engine.events import Event, TrainRequest
from attnkit.library.files import Files, paths_of, warn
from attnkit.library.loading import load

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from attnkit.engine.plan import TrainingPlan
    from attnkit.library.autoencoder import AutoEncoder
    from attnkit.library.classifiers import QuestionAnswering, TextClassifier, TokenClassifier
    from attnkit.library.language_models import CausalLM, MaskedLM
    from attnkit.library.loading import Loaded
    from attnkit.library.translation import Translator
    from attnkit.tasks.word2vec.vectors import Vectors


class TrainingArguments(TypedDict, total=False):
    """Arguments of all training functions; each sets what its flag sets."""

    config: str | Path | Mapping[str, Any] | None
    """YAML file, or its content as nested mappings."""
    settings: Mapping[str, Any] | None
    """Configuration keys and values, e.g. ``{"model.d_model": 512}``."""
    preset: str
    """Preset of all other keys; ``auto`` chooses by the size of the corpus."""
    init_from: str | Path | None
    """Run that provides initial weights and vocabulary."""
    max_steps: int | None
    max_epochs: float | None
    max_minutes: float | None
    seed: int | None
    device: str | None
    precision: str | None
    threads: int | None
    tensorboard: bool | None
    overwrite: bool
    """Rename an existing run folder and start a new run."""
    quiet: bool
    """Show no progress, in a terminal or a notebook; elsewhere there is none."""
    on_event: Callable[[Event], None] | None
    """Receives each event of ``engine.events``; an exception that it raises stops the training."""


@checked
def train(
    src: Files,
    tgt: Files,
    run: str | Path,
    *,
    valid_src: Files | None = None,
    valid_tgt: Files | None = None,
    model: Literal["transformer", "rnn"] | None = None,
    **arguments: Unpack[TrainingArguments],
) -> Translator:
    """Train a translator, or resume its run, and return the best model.

    Problems in text or checkpoints are issued as ``UserWarning``.

    Args:
        src: source text, one sentence per line; line n of ``tgt`` translates line n. Empty if ``settings`` has
            ``data.pairs``.
        tgt: target text.
        run: run folder.
        valid_src: validation source; None holds out a part of the text.
        valid_tgt: validation target.
        model: kind of model.
        arguments: see ``TrainingArguments``.

    Raises:
        UsageError: an unknown setting or an invalid value.
        DataError: text that cannot be used for training.
        DivergedError: ten steps in a row were not finite.
    """
    flags: dict[str, Any] = {"data.src": _listed(src), "data.tgt": _listed(tgt), "model.kind": model}
    flags |= {"data.valid_src": _listed(valid_src), "data.valid_tgt": _listed(valid_tgt)}
    return cast("Translator", _train(flags, run, arguments))


@checked
def pretrain_mlm(
    files: Files, run: str | Path, *, valid: Files | None = None, **arguments: Unpack[TrainingArguments]
) -> MaskedLM:
    """Pretrain BERT on raw text, or resume its run.

    Arguments and errors: see ``train``.
    """
    flags = {"task": "mlm", "data.files": _listed(files), "data.valid_files": _listed(valid)}
    return cast("MaskedLM", _train(flags, run, arguments))


@checked
def pretrain_clm(
    files: Files, run: str | Path, *, valid: Files | None = None, **arguments: Unpack[TrainingArguments]
) -> CausalLM:
    """Pretrain GPT on raw text, or resume its run.

    Arguments and errors: see ``train``.
    """
    flags = {"task": "clm", "data.files": _listed(files), "data.valid_files": _listed(valid)}
    return cast("CausalLM", _train(flags, run, arguments))


@checked
def finetune(
    pretrained: str | Path,
    task: Literal["text-classification", "token-classification", "question-answering"],
    files: Files,
    run: str | Path,
    *,
    valid: Files | None = None,
    **arguments: Unpack[TrainingArguments],
) -> TextClassifier | TokenClassifier | QuestionAnswering:
    """Fine-tune the encoder of a pretrained run for a task, or resume the run.

    ``files``: tables (text-classification), CoNLL (token-classification) or SQuAD JSON (question-answering). Arguments
    and errors: see ``train``.
    """
    flags = {"task": task, "data.files": _listed(files), "data.valid_files": _listed(valid)}
    return cast(
        "TextClassifier | TokenClassifier | QuestionAnswering",
        _train(flags, run, {"init_from": pretrained, **arguments}),
    )


@checked
def train_autoencoder(
    files: Files, run: str | Path, *, valid: Files | None = None, **arguments: Unpack[TrainingArguments]
) -> AutoEncoder:
    """Train an auto-encoder of lines or of vectors (.npy, .csv), or resume its run.

    Arguments and errors: see ``train``.
    """
    flags = {"task": "autoencode", "data.files": _listed(files), "data.valid_files": _listed(valid)}
    return cast("AutoEncoder", _train(flags, run, arguments))


@checked
def train_classifier(
    files: Files, run: str | Path, *, valid: Files | None = None, **arguments: Unpack[TrainingArguments]
) -> TextClassifier:
    """Train a document classifier (model han) on labeled text, or resume its run.

    Arguments and errors: see ``train``.
    """
    flags = {"task": "text-classification", "data.files": _listed(files), "data.valid_files": _listed(valid)}
    return cast("TextClassifier", _train(flags, run, arguments))


@checked
def word2vec(files: Files, run: str | Path, **arguments: Unpack[TrainingArguments]) -> Vectors:
    """Train word vectors on text, or resume their run.

    ``Word2Vec`` trains on sentences in memory. Keys of ``settings`` are the flags of ``attnkit word2vec train``, e.g.
    ``{"method": "glove", "dim": 50}``. Arguments and errors: see ``train``.
    """
    return cast("Vectors", _train({"task": "word2vec", "data.files": _listed(files)}, run, arguments))


class PlanArguments(TypedDict, total=False):
    """Settings, corpus without files, hardware and measurement of a plan."""

    config: str | Path | None
    """YAML configuration of the run."""
    tokens: float | None
    """Tokens of the corpus, instead of files."""
    examples: Count | None
    """Pairs or documents of the corpus, instead of files."""
    preset: str
    init_from: str | Path | None
    device: str | None
    precision: str | None
    threads: Count | None
    devices: Count
    """Devices that share the work."""
    hours: float | None
    """Hours that the run may take."""
    rate: float | None
    """Tokens per second of a device, measured elsewhere."""
    seconds: float
    """Seconds of training steps that are measured."""


@checked
def plan(
    src: Files | None = None,
    tgt: Files | None = None,
    *,
    files: Files | None = None,
    task: Literal["translation", "mlm", "clm"] | None = None,
    settings: Mapping[str, Any] | None = None,
    **arguments: Unpack[PlanArguments],
) -> TrainingPlan:
    """Plan a training run: parameters, tokens, memory, hours by a measured rate.

    Args:
        src: source text of a translator.
        tgt: target text.
        files: text of a language model.
        task: task of the run; None: translation.
        settings: configuration keys and values of the run.
        arguments: see ``PlanArguments``.

    Raises:
        UsageError: no corpus or two, or an invalid setting.
    """
    from attnkit.engine.plan import PlanRequest
    from attnkit.engine.plan import plan as plan_run

    flags = {"task": task, "data.src": _listed(src), "data.tgt": _listed(tgt), "data.files": _listed(files)}
    given: dict[str, Any] = dict(arguments)
    flags |= {name: given.pop(name, None) for name in ("device", "precision", "threads")}
    config, init_from = (
        None if (path := given.pop(name, None)) is None else Path(path) for name in ("config", "init_from")
    )
    return plan_run(PlanRequest({**flags, **(settings or {})}, file=config, init_from=init_from, **given))


def _listed(files: Files | None) -> list[str] | None:
    """Return the names of one or several files."""
    return None if files is None else [str(path) for path in paths_of(files)] or None


def _train(flags: Mapping[str, Any], run: str | Path, arguments: Mapping[str, Any]) -> Loaded:
    """Train as the command with these flags does; return the loaded run."""
    from attnkit.engine.resolve import TRAINING_KEYS, inherited, preset_of, resolve

    path, overwrite = Path(run), bool(arguments.get("overwrite"))
    init_from = arguments.get("init_from")
    source = None if init_from is None else Path(init_from)
    config = arguments.get("config")
    tree = dict(config) if isinstance(config, Mapping) else {}
    given = {TRAINING_KEYS[name]: value for name, value in arguments.items() if name in TRAINING_KEYS}
    resolved = resolve(
        {**flatten(tree), **flags_given(flags), **flags_given(given), **(arguments.get("settings") or {})},
        file=None if config is None or tree else Path(config),
        preset_name=arguments.get("preset", "auto"),
        earlier=None if overwrite else preset_of(path),
        fixed=None if source is None else inherited(source, None if overwrite else path),
    )
    _follow(TrainRequest(resolved.config, path, overwrite, source, resolved.origins), arguments)
    return load(path, device=getattr(resolved.config, "device", "auto"))


def flags_given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that have a value."""
    return {key: value for key, value in flags.items() if value is not None}


def _follow(request: TrainRequest, arguments: Mapping[str, Any]) -> None:
    """Train to the end."""
    from attnkit.engine.trainer import train as events

    def begin(update: Callable[[str], None]) -> Iterator[Event]:
        return events(replace(request, report_progress=update))

    follow_events(begin, bool(arguments.get("quiet")), arguments.get("on_event"))


def follow_events(
    begin: Callable[[Callable[[str], None]], Iterator[Any]], quiet: bool, on_event: Callable[[Any], None] | None
) -> None:
    """Take all events of a training run; show progress, issue warnings, hand them on.

    ``begin`` receives a function for messages of progress, and returns the events.
    """
    from attnkit.data.prepared_dir import DataCheckEvent, WarningEvent
    from attnkit.plotting.progress_text import data_check_lines
    from attnkit.progress.calls import training_progress

    with training_progress(quiet) as progress:
        for event in begin(progress.update):
            if on_event is not None:
                on_event(event)
            texts = [event.text] if isinstance(event, WarningEvent) else []
            if isinstance(event, DataCheckEvent):
                texts = [text.removeprefix("warning: ") for text in data_check_lines(event.report)]
            if not texts:
                progress.show(event)
                continue
            progress.clear()
            for text in texts:
                warn(text)
