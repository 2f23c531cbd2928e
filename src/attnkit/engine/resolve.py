"""Resolution of flags, ``--set``, file and preset into one configuration."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from attnkit.checkpoints.run_folder import RunFolder, is_run
from attnkit.config import Layer, Tree, flatten, load_yaml, merge, nest, parse_assignment, parse_yaml, validate
from attnkit.data.directions import expand_pairs, name_directions
from attnkit.engine.checkpoint_metadata import MAX_CONFIG_BYTES, read_tree
from attnkit.engine.registry import TASKS, TaskSpec, load_symbol, task_spec
from attnkit.engine.run_config import PRESETS, RunSettings, choose
from attnkit.errors import DataError, RunError, UsageError
from attnkit.io.safe_read import read_regular_file
from attnkit.text.lines import check_not_streams, count_lines
from attnkit.text.sources import source_name

RESUMED_PREFIX = "-o "  #: prefix of the origin of values that a resumed run inherits from itself
_INHERITED = ("task", "model", "vocabulary", "joint_vocabulary", "direction")
EMBEDDING_FILES = ("embeddings", "target_embeddings")  #: model keys that name files of word vectors
EMBEDDING_KEYS = (*EMBEDDING_FILES, "scale_embeddings")
"""Keys of initial embeddings; not inherited, as the weights contain the embeddings."""


def init_layer(run: Path, *, resumed: bool = False) -> Layer:
    """Return the settings inherited from another run: task, model and vocabulary.

    With ``resumed``, the run inherits from itself, including the lengths in its configuration. Raises ``RunError`` if
    the run is missing or damaged.
    """
    # Not validated here: the merged configuration is validated later as a whole.
    tree = read_tree(RunFolder(run).checkpoint()[0])
    objective, settings = _objective_keys(tree)
    kept: dict[str, Any] = {key: tree[key] for key in (*_INHERITED, objective, *settings) if key in tree}
    # Row length of a language model, for which its positions were trained.
    length = _get(tree, "data.sequence_length")
    if isinstance(model := kept.get("model"), dict):
        # The weights already contain the vectors from which they were initialized.
        model = kept["model"] = {key: value for key, value in model.items() if key not in EMBEDDING_KEYS}
        # Rotary and sinusoidal positions have no table that limits them, but were trained only up to some length.
        known, has_table = model.get("max_length"), model.get("positions") == "learned"
        if not has_table and isinstance(length, int) and isinstance(known, int):
            model["max_length"] = max(known, length)
    if isinstance(length, int):
        kept["data"] = {"sequence_length": length}
    if resumed and _get(kept, "model.positions") == "learned":
        # Lengths beyond the default may be valid only for this run.
        for name in ("data", "decoding"):
            if isinstance(section := tree.get(name), dict) and "max_length" in section:
                kept[name] = {"max_length": section["max_length"]}
    return Layer(f"{RESUMED_PREFIX if resumed else '--init-from '}{run}", kept)


def inherited(init_from: Path, run: Path | None) -> Layer:
    """Return the inherited settings; a resumed run inherits from itself."""
    if run is not None and is_run(run) and RunFolder(run).steps():  # the initial run may have been deleted
        return init_layer(run, resumed=True)
    return init_layer(init_from)


class EarlierPreset(NamedTuple):
    """Preset of a resumed run, and how long that run was to be."""

    name: str
    max_epochs: float | None = None
    every_epochs: float | None = None  #: between evaluations


def preset_of(run: Path) -> EarlierPreset | None:
    """Return the preset of the run in a folder; None without a run or a preset.

    It is read from the newest readable checkpoint or, before the first checkpoint, from the copy at the root. Other
    damage is reported when the run is opened.
    """
    folder, tree = RunFolder(run), None
    if not is_run(run):
        return None
    for step in reversed(folder.steps()):
        with suppress(RunError):
            tree = read_tree(folder.checkpoint(f"step-{step}")[0])
            break
    else:
        with suppress(OSError, ValueError, UsageError):  # a UnicodeDecodeError is a ValueError
            raw = read_regular_file(run / "config.yaml", MAX_CONFIG_BYTES)
            tree = parse_yaml(raw.decode(), "config.yaml")
    name = tree.get("preset") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or name not in PRESETS:
        return None
    lengths = (_get(tree, "limits.max_epochs"), _get(tree, "evaluation.every_epochs"))
    return EarlierPreset(str(name), *(value if isinstance(value, int | float) else None for value in lengths))


TRAINING_KEYS = {name: f"limits.{name}" for name in ("max_steps", "max_epochs", "max_minutes")}
TRAINING_KEYS |= {name: name for name in ("seed", "device", "precision", "threads", "tensorboard")}
"""Option of every training command and call -> configuration key."""
TEXT_KEYS = {key for kind in TASKS.values() for key in kind.input_keys}
"""Keys of sources of text."""
LIST_KEYS = {
    *TEXT_KEYS,
    "vocabulary_files",
    "adapter.maps",
    "finetuning.freeze",
    "extension.symbols",
    "extension.files",
}
"""Keys that take a list of names; a single name may be given without brackets."""
LIMIT_KEYS = {"max_steps", "max_epochs", "max_tokens"}
"""Keys of ``limits``. A limit set by the user replaces those of the preset; the first limit reached ends the run."""
EVAL_INTERVAL_KEYS = {"every_steps", "every_epochs"}
"""Mutually exclusive keys of ``evaluation``; the one set by the user replaces the other."""


@dataclass(frozen=True)
class ResolvedConfig:
    """Validated configuration and the origin of each value."""

    config: Any
    """Configuration, an instance of the task's class."""
    origins: Mapping[str, str]
    """Dotted key -> origin of its value; missing keys have their default value."""

    def origin(self, key: str) -> str:
        """Return the origin of a key's value, e.g. a flag or a file."""
        return self.origins.get(key, "default")


def resolve(
    flags: Mapping[str, Any],
    *,
    sets: Sequence[str] = (),
    file: Path | None = None,
    preset_name: str = "auto",
    earlier: EarlierPreset | None = None,
    fixed: Layer | None = None,
) -> ResolvedConfig:
    """Merge defaults, preset, file and flags, and validate the result.

    Args:
        flags: dotted key -> value; None means that the flag was not given, {} requests a group of keys such as
            ``subwords``, whose values other layers may set.
        sets: assignments of the form ``a.b=value``.
        file: a YAML configuration file.
        preset_name: a preset of the task, or ``auto`` for the preset in ``sets`` or ``file``, that of the resumed run,
            or the one for the number of lines.
        earlier: the preset of the resumed run, if any; lines are then not counted.
        fixed: values with priority just above the preset (``--init-from``: model and vocabulary of the other run).

    Raises:
        UsageError: a setting is missing, unknown or invalid.
        DataError: a source file cannot be read.
    """
    # User settings, lowest priority first: file, --set, flags.
    layers = _layers(file, sets, {"preset": None if preset_name == "auto" else preset_name, **flags})
    given, _ = merge(layers)
    # The task determines which presets and keys exist.
    kind, fixed = _choose_task(given, fixed)
    if missing := [key for key in kind.required_keys if not _get(given, key)]:
        others = " or ".join(f"--task {name}" for name, other in TASKS.items() if "data.files" in other.required_keys)
        stray = _get(given, "data.files") and "data.files" not in kind.required_keys
        some = ", ".join(key for key in kind.required_keys if key not in missing)
        what = f"{some} is given, but {', '.join(missing)} is not" if some else "no training data given"
        raise UsageError(what, help=f"--data needs {others}" if stray else f"give {kind.example}")
    if not kind.reads_streams:
        check_not_streams(path for key in kind.input_keys for path in _paths(given, key))
    if kind.defaults_path is not None:
        # For word2vec, defaults depend on the method rather than on a size.
        return _validated(kind, [*load_symbol(kind.defaults_path)(given), *layers])
    if (
        # Two vocabulary files can only be one per side.
        "joint_vocabulary" in kind.config.model_fields
        and len(_paths(given, "vocabulary_files")) == 2
        and _get(given, "joint_vocabulary") is None
    ):
        layers.append(Layer("two vocabularies", {"joint_vocabulary": False}))
        given, _ = merge(layers)
    # From a flag or file; auto is resolved below.
    name = _get(given, "preset")
    if name in (None, "auto"):
        # A resumed run keeps its preset, even if its text has grown since.
        is_known = earlier is not None and earlier.name in kind.presets
        name, origin = (earlier.name, "the run") if earlier and is_known else _choose_preset(given, fixed, kind)
        layers.append(Layer(origin, {"preset": name}))
    elif name not in kind.presets:
        help = f"choose one of auto, {', '.join(kind.presets)}"
        raise UsageError(f"unknown preset '{name}' for {kind.description}", help=help)
    if name == kind.init_preset and not _is_of_task(fixed, given):
        help = f"name a run: --init-from RUN, or choose one of {', '.join(kind.presets[:-1])}"
        raise UsageError(f"the preset {name} needs {kind.description} to begin from", where="--preset", help=help)
    model = _model_kind(given, fixed) or kind.default_kind
    tree = kind.preset(name, str(load_symbol(kind.default_kind_path)(given) if model is None else model))
    adjust_path = kind.adjust_init_path if name == kind.init_preset else kind.adjust_path
    if adjust_path is not None:
        tree = load_symbol(adjust_path)(tree, merge([*([fixed] if fixed else []), *layers])[0])
    if kind.lengthen_path is not None:
        tree = _lengthened(kind.lengthen_path, tree, given, earlier if earlier and earlier.name == name else None)
    if _get(given, "joint_vocabulary") is False:
        # Two vocabularies cannot share one matrix.
        tree["model"]["tie_embeddings"] = "target"
    # Otherwise the preset's max_epochs could end a run before a given max_steps.
    below = _without(Layer(f"preset {name}", tree), "limits", LIMIT_KEYS, layers)
    below = _without(below, "evaluation", EVAL_INTERVAL_KEYS, layers)
    written, by_hand = (layers[:1], layers[1:]) if file is not None else ([], layers)
    written = [_without(layer, "evaluation", EVAL_INTERVAL_KEYS, by_hand) for layer in written]
    return _validated(kind, [below, *([fixed] if fixed else []), *written, *by_hand])


def _lengthened(lengthen_path: str, tree: Tree, given: Tree, earlier: EarlierPreset | None) -> Tree:
    """Return a preset that is as long as few examples need.

    A resumed run stays as long as it was, even if its files have changed or are gone.
    """
    if earlier is not None:
        kept = [("limits", "max_epochs", earlier.max_epochs), ("evaluation", "every_epochs", earlier.every_epochs)]
        return tree | {name: {**tree[name], key: value} for name, key, value in kept if value is not None}
    from attnkit.text.table_rows import count_rows  # imported here: a translator needs no tables

    with suppress(DataError, UsageError):  # a missing file is reported by its reader
        n_lines = sum(count_rows(path) for path in _paths(given, "data.files"))
        lengthened: Tree = load_symbol(lengthen_path)(tree, n_lines)
        return lengthened
    return tree


def _validated(kind: TaskSpec, layers: Sequence[Layer]) -> ResolvedConfig:
    tree, origins = merge(layers)
    if isinstance(data := tree.get("data"), Mapping) and {"directions", "bidirectional", "denoise"} & data.keys():
        tree = {**tree, "data": name_directions(data)}
    try:
        return ResolvedConfig(validate(kind.config, tree, origins), origins)
    except UsageError as error:
        error.help = error.help and error.help.replace("attnkit train", f"attnkit {kind.train_command}")
        raise


def differences(old: RunSettings, new: RunSettings) -> list[str]:
    """Return ``key: old -> new`` for every changed key that is not resumable."""
    if old.task != new.task:  # other tasks have other keys
        return [f"task: {old.task} -> {new.task}"]
    # Dotted key -> value.
    before, after = (flatten(config.model_dump(mode="json")) for config in (old, new))
    return [
        f"{key}: {before.get(key)} -> {after.get(key)}"
        # dict.fromkeys forms a union in a stable order.
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key) and not key.startswith(old.resumable_keys)
    ]


def _layers(file: Path | None, sets: Sequence[str], flags: Mapping[str, Any]) -> list[Layer]:
    """Return the layers of user settings, lowest priority first."""
    layers = [Layer(str(file), load_yaml(file))] if file is not None else []
    layers += [Layer(f"--set {text.partition('=')[0]}", parse_assignment(text)) for text in sets]
    layers += [Layer("flag", nest(key.split("."), value)) for key, value in flags.items() if value not in (None, {})]
    # {}: a group of keys that must exist, with default values unless other layers set them.
    given, _ = merge(layers)
    groups = [key for key, value in flags.items() if value == {} and not isinstance(_get(given, key), Mapping)]
    layers += [Layer("flag", nest(key.split("."), {})) for key in groups]
    return [Layer(layer.origin, _listed(_with_files(layer), layer.origin)) for layer in layers]


def _with_files(layer: Layer) -> Mapping[str, Any]:
    """Return a layer's tree with pairs of files as ``src`` and ``tgt``."""
    data = layer.tree.get("data")
    if not isinstance(data, Mapping) or not {"pairs", "valid_pairs"} & data.keys():
        return layer.tree
    try:
        return {**layer.tree, "data": expand_pairs(data)}
    except ValueError as error:
        raise UsageError(str(error), where=layer.origin) from error


def _listed(tree: Mapping[str, Any], origin: str, prefix: str = "") -> Tree:
    """Return a tree with single names of ``LIST_KEYS`` wrapped in lists.

    Fields of tables, ``{path: a.jsonl, field: en}``, become names: ``a.jsonl:en``.
    """
    listed: Tree = {}
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if dotted in LIST_KEYS and value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            try:
                names = [source_name(one) if dotted in TEXT_KEYS else one for one in values]
            except ValueError as error:
                raise UsageError(str(error), where=f"{dotted} ({origin})") from error
            listed[key] = names if isinstance(value, str | Mapping | list) else value
        elif isinstance(value, Mapping):
            listed[key] = _listed(value, origin, f"{dotted}.")
        else:
            listed[key] = value
    return listed


def _model_kind(given: Tree, fixed: Layer | None) -> Any:
    return _get(given, "model.kind") or (_get(fixed.tree, "model.kind") if fixed is not None else None)


def _objective_keys(tree: Tree) -> tuple[str, tuple[str, ...]]:
    """Return the key of a task's objective, and those of its settings.

    The key is "" for a task with a single objective.
    """
    task = _get(tree, "task")
    spec = TASKS.get(task) if isinstance(task, str) else None
    return ("", ()) if spec is None else (spec.objective_key or "", spec.objective_settings)


def _choose_task(given: Tree, fixed: Layer | None) -> tuple[TaskSpec, Layer | None]:
    """Return the requested task (default: translation) and its inherited settings.

    Raises ``UsageError`` for an unknown task, ``RunError`` if the task of the initial run cannot initialize this task.
    """
    name = _get(given, "task") or "translation"
    if not isinstance(name, str) or name not in TASKS:
        raise UsageError(f"unknown task '{str(name)[:40]}'", help=f"choose one of {', '.join(TASKS)}")
    if fixed is None:
        return task_spec(name, _model_kind(given, None) or TASKS[name].default_variant), None
    # The task of the run that provides the weights.
    stored, allowed = _get(fixed.tree, "task"), (*TASKS[name].init_from_tasks, name)
    if stored not in allowed:
        nouns = " or ".join(TASKS[other].description for other in allowed)
        own = fixed.origin.startswith(RESUMED_PREFIX)
        made = f"name such a run, or train one: attnkit train --task {allowed[0]}"
        help = "name another folder, or add --overwrite" if own else made
        raise RunError(f"this is a run of task '{str(stored)[:40]}', not {nouns}", where=fixed.origin, help=help)
    objective, settings = _objective_keys(fixed.tree)
    if _get(given, objective) not in (None, _get(fixed.tree, objective)):  # the settings belong to their objective
        fixed = Layer(fixed.origin, {key: value for key, value in fixed.tree.items() if key not in settings})
    kind = task_spec(name, _model_kind(given, fixed))
    if stored not in kind.init_from_tasks:
        return kind, fixed
    if kind.adapt_init_path is not None:
        tree = load_symbol(kind.adapt_init_path)(fixed.tree, _get(given, "model.kind"))
    else:
        # Another task does not inherit data settings.
        tree = {key: value for key, value in fixed.tree.items() if key not in ("task", "data", objective, *settings)}
        if isinstance(tree.get("model"), dict):
            tree["model"] = {key: value for key, value in tree["model"].items() if key not in kind.excluded_init_keys}
    return kind, Layer(fixed.origin, tree)


def _is_of_task(fixed: Layer | None, given: Tree) -> bool:
    """Return whether the initial weights are of a run of the requested task."""
    return fixed is not None and _get(fixed.tree, "task") == (_get(given, "task") or "translation")


def _choose_preset(given: Tree, fixed: Layer | None, kind: TaskSpec) -> tuple[str, str]:
    """Return the preset for the initial model or number of rows, and its origin."""
    model = _get(fixed.tree, "model") if fixed is not None else None
    if kind.preset_for_init_path is not None and isinstance(model, Mapping):
        return load_symbol(kind.preset_for_init_path)(model), "width of the model"
    if kind.init_preset is not None and _is_of_task(fixed, given):
        return kind.init_preset, "--init-from"
    n_rows = 0
    for path in _paths(given, kind.input_keys[0]):
        if path.suffix == ".npy":
            from attnkit.data.arrays import map_npy

            n_rows += len(map_npy(path))
        else:
            n_rows += count_lines(path)
    return choose(n_rows, kind.preset_thresholds), "number of lines"


def _without(layer: Layer, section: str, names: set[str], above: Sequence[Layer]) -> Layer:
    """Return a layer without ``names`` in a section if a layer above sets any."""
    # Only mutually exclusive keys are removed; the section's other keys stay.
    own, others = _get(layer.tree, section), (_get(higher.tree, section) for higher in above)
    if not isinstance(own, Mapping) or not any(isinstance(other, Mapping) and names & set(other) for other in others):
        return layer
    return Layer(layer.origin, {**layer.tree, section: {k: v for k, v in own.items() if k not in names}})


def _paths(tree: Tree, dotted: str) -> list[Path]:
    """Return the files of a key; [] for an invalid value, which validation reports."""
    names = _get(tree, dotted)
    well = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return [Path(name) for name in names] if well else []


def _get(tree: Mapping[str, Any], dotted: str) -> Any:
    # Missing keys give None at any depth.
    value: Any = tree
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
