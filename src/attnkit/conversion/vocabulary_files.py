"""Parts of a folder from which vocabularies are read, and what they become."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from attnkit.errors import RunError, system_failure
from attnkit.io.safe_read import parse_json, read_regular_file
from attnkit.text.tokenizer import Tokenizer

Tree = Mapping[str, Any]
T = TypeVar("T")
MAX_JSON_BYTES = 1 << 24  #: maximum size of a settings file in bytes


@dataclass(frozen=True)
class Vocabulary:
    """An imported vocabulary and the original ids of its entries."""

    tokenizer: Tokenizer
    order: list[int | None]  #: original id of each of our ids; None: no such entry
    separators: int = 1  #: separators between two texts


def separators(tree: Tree, model: str) -> int:
    """Return the number of separators between two texts: 1, or 2 as in RoBERTa."""
    step = mapping(tree.get("post_processor"))
    steps = step.get("processors") if step.get("type") == "Sequence" else [step]
    for step in map(mapping, steps if isinstance(steps, list) else []):
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            return 2 if step["type"] == "RobertaProcessing" else 1
        if step.get("type") == "TemplateProcessing" and isinstance(pair := step.get("pair"), list):
            names = [mapping(mapping(part).get("Sequence")).get("id") for part in pair]
            if "A" in names and "B" in names:
                return min(2, max(1, names.index("B") - names.index("A") - 1))
    return 2 if model in ("roberta", "xlm-roberta") else 1


def added_tokens(tree: Tree) -> dict[int, str]:
    """Return the added tokens by id; raise ``ValueError`` if one is malformed."""
    added = tree.get("added_tokens") or []
    if not isinstance(added, Sequence) or not all(
        isinstance(token, Mapping) and type(token.get("id")) is int and isinstance(token.get("content"), str)
        for token in added
    ):
        raise ValueError("its added tokens lack ids or names")
    found: dict[int, str] = {}
    for token in added:
        if (name := found.setdefault(token["id"], token["content"])) != token["content"]:
            raise ValueError(f"duplicate id {token['id']}: '{name[:40]}' and '{token['content'][:40]}'")
    return found


def read_tree(path: Path, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Read a JSON object; raise as ``read_file``, and ``RunError`` for other values."""
    tree = read_file(path, most, parse_json)
    if not isinstance(tree, dict):
        raise RunError(f"{path.name} is not a JSON object", where=str(path))
    return tree


def read_settings(folder: Path) -> dict[str, Any]:
    """Read ``tokenizer_config.json``, empty if missing; refuse code of the folder.

    Raises as ``read_file``, and ``RunError`` if the tokenizer is such code.
    """
    path = folder / "tokenizer_config.json"
    settings = read_tree(path) if path.exists() else {}
    if "auto_map" in settings:
        what = "the tokenizer is code of the folder (auto_map), which attnkit does not run"
        raise RunError(what, where=str(path), help="remove auto_map if transformers has this tokenizer")
    return settings


def read_file(path: Path, most: int, parse: Callable[[bytes], T]) -> T:
    """Read and parse a file.

    Raises ``RunError`` if it is missing, too large or invalid, ``SystemFailure`` for other read errors.
    """
    try:
        return parse(read_regular_file(path, most, follow=True))
    except ValueError as error:
        raise RunError(f"{path.name} cannot be used: {error}", where=str(path)) from error
    except FileNotFoundError as error:
        raise RunError(f"no {path.name} in {path.parent}", help="use a folder written by save_pretrained") from error
    except OSError as error:
        raise system_failure("read", path, error) from error


def mapping(value: Any) -> Tree:
    """Return a value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}
