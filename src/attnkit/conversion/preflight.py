"""Check before training, from the configuration alone, whether a translation run can be exported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from attnkit.engine.resolve import resolve
from attnkit.errors import RunError, UsageError
from attnkit.formats.huggingface.config import refuse_translation

System = Literal["ctranslate2", "huggingface"]
NAMES: dict[System, str] = {"ctranslate2": "CTranslate2", "huggingface": "Hugging Face's transformers"}


def check_exportable(
    src: Path, tgt: Path, to: System, *, file: Path | None = None, sets: Sequence[str] = (), preset: str = "auto"
) -> str:
    """Check that a run with these settings can be exported; return a sentence that says so.

    Raises:
        UsageError: a key prevents the export (the message names it), or the settings are invalid.
    """
    flags = {"data.src": [str(src)], "data.tgt": [str(tgt)]}
    resolved = resolve(flags, sets=sets, file=file, preset_name=preset)
    model = resolved.config.model
    try:
        if to == "huggingface":
            refuse_translation(model)
        else:
            from attnkit.formats.ctranslate2 import require_known

            require_known(model)
    except RunError as error:
        origin = resolved.origin(str(error.where).partition(",")[0])
        raise UsageError(error.what, where=f"{error.where} ({origin})", help=error.help) from error
    return f"A run on these files with these settings can be exported to {NAMES[to]}."
