"""Flags, ``--set``, a file and the method's choices to one configuration of word vectors, with origins. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.config import Layer, flatten, load_yaml, merge, nest, parse_assignment, validate
from attnkit.errors import UsageError
from attnkit.runtime.processes import usable_cpus
from attnkit.tasks.word2vec.config import RESUMABLE_KEYS, Word2VecConfig, chosen


@dataclass(frozen=True)
class Resolved:
    """A checked configuration."""

    config: Word2VecConfig
    origins: Mapping[str, str]
    """Dotted key -> where its value came from; keys that are not here have their default."""

    def origin(self, key: str) -> str:
        """Return where the value of a dotted key came from."""
        return self.origins.get(key, "default")


def resolve(flags: Mapping[str, Any], sets: Sequence[str] = (), file: Path | None = None) -> Resolved:
    """Lay all layers over each other and check the result.

    Args:
        flags: dotted key -> value; None means that the flag was not given, {} that there is to be such a group of keys,
            whatever other layers say of them.
        sets: texts of the form ``a.b=value``.
        file: a YAML configuration.

    Raises:
        UsageError: whatever is wrong with any of it.
    """
    layers = [Layer(str(file), load_yaml(file))] if file is not None else []
    layers += [Layer(f"--set {text.partition('=')[0]}", parse_assignment(text)) for text in sets]
    layers += [Layer("flag", nest(key.split("."), value)) for key, value in flags.items() if value not in (None, {})]
    given, _ = merge(layers)
    groups = [key for key, value in flags.items() if value == {} and not isinstance(given.get(key), Mapping)]
    layers += [Layer("flag", {key: {}}) for key in groups]
    data = given.get("data")
    if not isinstance(data, Mapping) or not data.get("files"):
        raise UsageError("there is no text to train on", help="name a file: attnkit word2vec train text.txt -o vectors")
    if isinstance(data["files"], str):
        layers.append(Layer("data.files", {"data": {"files": [data["files"]]}}))
    method = given.get("method", "skip-gram")
    below = [
        Layer("the processors", {"threads": usable_cpus()}),
        Layer(f"method {method}", chosen(method, given)),
    ]
    tree, origins = merge([*below, *layers])
    try:
        return Resolved(validate(Word2VecConfig, tree, origins), origins)
    except UsageError as error:
        error.help = error.help and error.help.replace("attnkit train", "attnkit word2vec train")
        raise


def differences(old: Word2VecConfig, new: Word2VecConfig) -> list[str]:
    """Return ``key: old -> new`` for everything that makes it another run."""
    free = (*RESUMABLE_KEYS, *(() if old.deterministic else ("threads",)))
    before, after = (flatten(config.model_dump(mode="json")) for config in (old, new))
    return [
        f"{key}: {before.get(key)} -> {after.get(key)}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key) and key not in free
    ]
