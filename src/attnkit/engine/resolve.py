"""Resolve flags, ``--set``, a file, a preset and an earlier run into one configuration with origins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.config import Layer, Tree, flatten, load_yaml, merge, nest, parse_assignment, parse_yaml, validate
from attnkit.engine.checkpoint_metadata import MAX_CONFIG_BYTES, read_tree
from attnkit.engine.registry import TASKS, TaskSpec, task_spec
from attnkit.engine.run_config import PRESETS, RunSettings, choose
from attnkit.errors import RunError, UsageError
from attnkit.io.safe_read import read_regular_file
from attnkit.text.lines import check_not_streams, count_lines

RESUMED_PREFIX = "-o "
"""Prefix of the origin of values that a resumed run takes from itself."""
EMBEDDING_FILES = ("embeddings", "target_embeddings")
"""Keys of a model that name word vectors."""
EMBEDDING_KEYS = (*EMBEDDING_FILES, "scale_embeddings")
"""Keys of initial embeddings; the weights contain them, so they are not inherited."""


def init_layer(run: Path) -> Layer:
    """Return what a run that starts from another takes over: model, vocabulary and how the two sides share it.

    Raises:
        RunError: no such run, or a damaged one.
    """
    # Unvalidated: whatever fits is inherited, and validated later as a whole.
    tree = read_tree(RunFolder(run).checkpoint()[0])
    kept: dict[str, Any] = {
        key: tree[key] for key in ("task", "model", "vocabulary", "joint_vocabulary", "direction") if key in tree
    }
    if isinstance(kept.get("model"), dict):  # its weights have taken in the vectors that it started with
        kept["model"] = {key: value for key, value in kept["model"].items() if key not in EMBEDDING_KEYS}
        kept["model"] |= _learned_from(kept["model"], tree.get("data"))
    if (length := _row_length(tree)) is not None:
        kept["data"] = {"sequence_length": length}
    return Layer(f"--init-from {run}", kept)


def _learned_from(model: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return how long the rows of a language model were, where its positions have no table that says it."""
    length = data.get("sequence_length") if isinstance(data, dict) else None
    # Rotary and sinusoidal positions have no table, but were trained on some lengths only.
    known = model.get("max_length")
    if model.get("positions") == "learned" or not isinstance(length, int) or not isinstance(known, int):
        return {}
    return {"max_length": max(known, length)}


def _row_length(tree: Mapping[str, Any]) -> int | None:
    """Return ``data.sequence_length`` of a language model's run, which its positions are made for."""
    data = tree.get("data")
    length = data.get("sequence_length") if isinstance(data, dict) else None
    return length if isinstance(length, int) else None


def inherited(init_from: Path, run: Path | None) -> Layer:
    """Return what a run takes over from another; a resumed one has it in itself, and the other may be gone."""
    if run is None or not RunFolder(run).exists() or not RunFolder(run).steps():
        return init_layer(init_from)
    return Layer(
        f"{RESUMED_PREFIX}{run}", {**init_layer(run).tree, **_lengths(read_tree(RunFolder(run).checkpoint()[0]))}
    )


def _lengths(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return how long lines and translations may be in a run that may have them from the positions it started with."""
    model = tree.get("model")
    if not isinstance(model, dict) or model.get("positions") != "learned":
        return {}
    # Lengths beyond the default may be valid for this run alone.
    sections = {name: tree.get(name) for name in ("data", "decoding")}
    return {
        name: {"max_length": section["max_length"]}
        for name, section in sections.items()
        if isinstance(section, dict) and "max_length" in section
    }


def preset_of(run: Path) -> str | None:
    """Return the preset of the run in a folder; None without a run yet, or one that names none.

    The newest checkpoint whose configuration is whole says it, before the first one the copy at the root. Whatever else
    is wrong with the folder is for those to say who open it.
    """
    folder = RunFolder(run)
    if not folder.exists():
        return None
    # The newest readable checkpoint decides; a damaged one is reported when the run is opened.
    for step in reversed(folder.steps()):
        with suppress(RunError):
            return _preset_in(read_tree(folder.checkpoint(f"step-{step}")[0]))
    with suppress(OSError, ValueError, UsageError):  # a UnicodeDecodeError is a ValueError
        return _preset_in(parse_yaml(read_regular_file(run / "config.yaml", MAX_CONFIG_BYTES).decode(), "config.yaml"))
    return None


def _preset_in(tree: Any) -> str | None:
    name = tree.get("preset") if isinstance(tree, dict) else None
    return name if name in PRESETS else None


LIST_KEYS = {*(key for kind in TASKS.values() for key in kind.input_keys), "vocabulary_files"}
"""Keys that take a list of names, of which one alone needs no brackets."""
LIMIT_KEYS = {"max_steps", "max_epochs", "max_tokens"}
"""Of ``limits``: one given by hand replaces the preset's. Those given by hand all hold, whichever comes first."""
EVAL_INTERVAL_KEYS = {"every_steps", "every_epochs"}
"""Of ``evaluation``: there is one, and what is given replaces the other of the file and of the preset."""


@dataclass(frozen=True)
class Resolved:
    """Validated configuration and the origin of each value."""

    config: Any
    """Of the task's own class."""
    origins: Mapping[str, str]
    """Dotted key -> where its value came from; keys that are not here have their default."""

    def origin(self, key: str) -> str:
        """Return where the value of a dotted key came from."""
        return self.origins.get(key, "default")


def resolve(
    flags: Mapping[str, Any],
    *,
    sets: Sequence[str] = (),
    file: Path | None = None,
    preset_name: str = "auto",
    earlier: str | None = None,
    fixed: Layer | None = None,
) -> Resolved:
    """Lay all layers over each other and check the result.

    Args:
        flags: dotted key -> value; None means that the flag was not given, {} asks for a group of keys such as
            ``subwords``, whose keys other layers may give.
        sets: texts of the form ``a.b=value``.
        file: a YAML configuration.
        preset_name: one of the task's, or ``auto`` for the one that ``sets`` or ``file`` name, that of the resumed run,
            or the one that fits the number of lines.
        earlier: the preset of the resumed run, if there is one; then no text is read.
        fixed: values that come right above the preset (``--init-from``: model and vocabulary of the other run).

    Raises:
        UsageError: whatever is wrong with any of it.
        DataError: the first source file cannot be read.
    """
    # Given by hand, lowest first: file, --set, flags.
    layers = _layers(file, sets, {"preset": None if preset_name == "auto" else preset_name, **flags})
    given, _ = merge(layers)
    # The task decides which presets and keys there are.
    kind = _task_spec(given, fixed)
    # From the lowest layer up: preset, inherited values, file, --set, flags.
    fixed = _adapted_init(fixed, kind, given)
    if not all(_get(given, key) for key in kind.required_keys):
        others = " or ".join(f"--task {name}" for name, other in TASKS.items() if "data.files" in other.required_keys)
        stray = _get(given, "data.files") and "data.files" not in kind.required_keys
        raise UsageError("no training data given", help=f"--data needs {others}" if stray else f"give {kind.example}")
    if not kind.reads_streams:
        check_not_streams(path for key in kind.input_keys for path in _paths(given, key))
    if not kind.presets:
        # word2vec: defaults depend on the method, not on a size.
        tree, origins = merge([*kind.defaults(given), *layers])
        return _validated(kind, tree, origins)
    if (
        # Two vocabulary files can only mean one per side.
        "joint_vocabulary" in kind.config.model_fields
        and len(_paths(given, "vocabulary_files")) == 2
        and _get(given, "joint_vocabulary") is None
    ):
        layers.append(Layer("two vocabularies", {"joint_vocabulary": False}))
        given, _ = merge(layers)
    # Flag or file; auto chooses below.
    name = _get(given, "preset")
    if name in (None, "auto"):
        # A resumed run keeps its preset, even if its text has grown since.
        earlier = earlier if earlier in kind.presets else None
        name, origin = (earlier, "the run") if earlier is not None else _preset_name(given, fixed, kind)
        layers.append(Layer(origin, {"preset": name}))
    elif name not in kind.presets:
        help = f"choose auto, {', '.join(kind.presets)}"
        raise UsageError(f"unknown preset '{name}' for {kind.description}", help=help)
    below = Layer(f"preset {name}", _preset(name, given, fixed, kind))
    written, by_hand = (layers[:1], layers[1:]) if file is not None else ([], layers)
    # Otherwise the preset's max_epochs could end a run before the max_steps that was given.
    below = _without(below, "limits", LIMIT_KEYS, layers)
    below = _without(below, "evaluation", EVAL_INTERVAL_KEYS, layers)
    written = [_without(layer, "evaluation", EVAL_INTERVAL_KEYS, by_hand) for layer in written]
    tree, origins = merge([below, *([fixed] if fixed else []), *written, *by_hand])
    return _validated(kind, tree, origins)


def _validated(kind: TaskSpec, tree: Tree, origins: Mapping[str, str]) -> Resolved:
    try:
        return Resolved(validate(kind.config, tree, origins), origins)
    except UsageError as error:
        error.help = error.help and error.help.replace("attnkit train", f"attnkit {kind.train_command}")
        raise


def differences(old: RunSettings, new: RunSettings) -> list[str]:
    """Return ``key: old -> new`` for everything that makes it another run: all but limits and output options."""
    if old.task != new.task:  # of which the keys are others
        return [f"task: {old.task} -> {new.task}"]
    # Dotted key -> value.
    before, after = (flatten(config.model_dump(mode="json")) for config in (old, new))
    return [
        f"{key}: {before.get(key)} -> {after.get(key)}"
        # dict.fromkeys: a union in a stable order.
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key) and not key.startswith(old.resumable_keys)
    ]


def _layers(file: Path | None, sets: Sequence[str], flags: Mapping[str, Any]) -> list[Layer]:
    """Return what was given by hand, the lowest first."""
    layers = [Layer(str(file), load_yaml(file))] if file is not None else []
    layers += [Layer(f"--set {text.partition('=')[0]}", parse_assignment(text)) for text in sets]
    layers += [Layer("flag", nest(key.split("."), value)) for key, value in flags.items() if value not in (None, {})]
    # {}: a group of keys that must be there, with its defaults where no layer gives any.
    given, _ = merge(layers)
    groups = [key for key, value in flags.items() if value == {} and not isinstance(_get(given, key), Mapping)]
    layers += [Layer("flag", nest(key.split("."), {})) for key in groups]
    return [Layer(layer.origin, _listed(layer.tree)) for layer in layers]


def _listed(tree: Mapping[str, Any], prefix: str = "") -> Tree:
    """Return a tree in which a name that stands alone where a list is asked for is a list of one."""
    found: Tree = {}
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found[key] = _listed(value, f"{dotted}.")
        else:
            found[key] = [value] if dotted in LIST_KEYS and isinstance(value, str) else value
    return found


def _task_spec(given: Tree, fixed: Layer | None) -> TaskSpec:
    """Return the task asked for, translation if none is; a run initialized from another has its task."""
    name = _get(given, "task") or "translation"
    if not isinstance(name, str) or name not in TASKS:
        raise UsageError(f"unknown task '{str(name)[:40]}'", help=f"choose one of {', '.join(TASKS)}")
    # The task of the run that weights come from.
    begun = _get(fixed.tree, "task") if fixed else name
    allowed = (*TASKS[name].init_from_tasks, name)
    if fixed is not None and begun not in allowed:
        nouns = " or ".join(TASKS[other].description for other in allowed)
        own = fixed.origin.startswith(RESUMED_PREFIX)
        help = "name another folder, or add --overwrite" if own else "initialize from another run"
        raise RunError(f"this run is of the kind '{str(begun)[:40]}', not {nouns}", where=fixed.origin, help=help)
    given_kind = _get(given, "model.kind") or (_get(fixed.tree, "model.kind") if fixed is not None else None)
    return task_spec(name, given_kind if given_kind is not None or fixed is not None else TASKS[name].default_variant)


def _adapted_init(fixed: Layer | None, kind: TaskSpec, given: Tree) -> Layer | None:
    """Return what a run takes over from another, less what one of another kind has for itself."""
    if fixed is None or _get(fixed.tree, "task") not in kind.init_from_tasks:
        return fixed
    if kind.adapt_init_config is not None:
        return Layer(fixed.origin, kind.adapt_init_config(fixed.tree, _get(given, "model.kind")))
    # Settings of the data are not inherited by another task.
    tree = {key: value for key, value in fixed.tree.items() if key not in ("task", "data")}
    if isinstance(tree.get("model"), dict):
        tree["model"] = {key: value for key, value in tree["model"].items() if key not in kind.excluded_init_keys}
    return Layer(fixed.origin, tree)


def _preset_name(given: Tree, fixed: Layer | None, kind: TaskSpec) -> tuple[str, str]:
    """Return the preset by the initial model or by the number of training rows, and which of them."""
    model = _get(fixed.tree, "model") if fixed is not None else None
    if kind.preset_for_init is not None and isinstance(model, Mapping):
        return kind.preset_for_init(model), "width of the model"
    paths = _paths(given, kind.input_keys[0])
    n_rows = sum(_count_rows(path) for path in paths)
    return choose(n_rows, kind.preset_thresholds), "number of lines"


def _count_rows(path: Path) -> int:
    if path.suffix != ".npy":
        return count_lines(path)
    from attnkit.data.arrays import count_rows

    return count_rows(path)


def _preset(name: str, given: Tree, fixed: Layer | None, kind: TaskSpec) -> Tree:
    """Return the preset's tree for the kind of model asked for, less the choices that exclude a given one."""
    model = (
        _get(given, "model.kind") or (_get(fixed.tree, "model.kind") if fixed else None) or kind.default_model(given)
    )
    tree = kind.preset(name, str(model))
    if _get(given, "joint_vocabulary") is False:
        # Two vocabularies cannot share one matrix.
        tree["model"]["tie_embeddings"] = "target"
    return tree


def _without(layer: Layer, section: str, names: set[str], above: Sequence[Layer]) -> Layer:
    """Return a layer less its keys of a section that are in ``names``, if a layer above sets any of these."""
    # Only keys that exclude each other: the section's other keys stay.
    own, others = _get(layer.tree, section), (_get(higher.tree, section) for higher in above)
    if not isinstance(own, Mapping) or not any(isinstance(other, Mapping) and names & set(other) for other in others):
        return layer
    return Layer(layer.origin, {**layer.tree, section: {k: v for k, v in own.items() if k not in names}})


def _paths(tree: Tree, dotted: str) -> list[Path]:
    """Return the files that a key names; none if its value is not a list of names, which validation reports."""
    names = _get(tree, dotted)
    well = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return [Path(name) for name in names] if well else []


def _get(tree: Mapping[str, Any], dotted: str) -> Any:
    # Missing keys give None at any depth.
    value: Any = tree
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
