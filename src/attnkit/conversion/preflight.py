"""Export check of a configuration before training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from attnkit.config import Layer, load_yaml, merge, parse_assignment
from attnkit.engine.resolve import resolve
from attnkit.errors import RunError, UsageError
from attnkit.formats.exportable import check_ctranslate2, check_huggingface
from attnkit.formats.marian import check_marian_format

System = Literal["ctranslate2", "huggingface", "marian"]
NAMES: dict[System, str] = {
    "ctranslate2": "CTranslate2",
    "huggingface": "Hugging Face's transformers",
    "marian": "Marian",
}


def check_exportable(
    src: Path, tgt: Path, to: System, *, file: Path | None = None, sets: Sequence[str] = (), preset: str = "auto"
) -> str:
    """Check that a run with these settings can be exported; return a confirmation.

    The settings may select any task; tasks other than translation use both files as training data. Raises
    ``UsageError`` if the settings are invalid, or if a key, named in the message, prevents the export.
    """
    settings = [load_yaml(file)] if file is not None else []
    tree, _ = merge([Layer("", tree) for tree in (*settings, *map(parse_assignment, sets))])
    flags = {"data.src": [str(src)], "data.tgt": [str(tgt)]}
    if tree.get("task", "translation") != "translation":
        flags = {"data.files": [str(src), str(tgt)]}
    resolved = resolve(flags, sets=sets, file=file, preset_name=preset)
    config = resolved.config
    try:
        if to == "huggingface":
            check_huggingface(config)
        elif to == "ctranslate2":
            check_ctranslate2(config)
        elif config.task != "translation":
            what = f"{NAMES[to]} does not support runs of task '{config.task}'"
            raise RunError(what, where="task", help="supported: translation")
        else:
            check_marian_format(config.model)
    except RunError as error:
        origin = resolved.origin(str(error.where).partition(",")[0])
        raise UsageError(error.what, where=f"{error.where} ({origin})", help=error.help) from error
    return f"A run on these files with these settings can be exported to {NAMES[to]}."
