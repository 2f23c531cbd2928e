"""The page at ``/``: translation while typing, and forms for other tasks."""

from __future__ import annotations

from typing import Any

from attnkit.plotting.html import as_json, render_page
from attnkit.quality.language_names import name_of
from attnkit.serving.models import Models
from attnkit.serving.specs import UNKNOWN

HERE = "attnkit.serving.page"


def page(models: Models, *, needs_key: bool) -> str:
    """Return the page for the models of a service; it loads nothing but their answers."""
    served = [
        _facts(model.name, "autoencode-vectors" if model.reads_vectors else model.task, model.languages)
        for model in models.by_name.values()
    ]
    data = {"models": served, "needsKey": needs_key, "maxBeamSize": models.limits.max_beam_size}
    return render_page(HERE, ["panes.js", "forms.js"], "attnkit", {"DATA": as_json(data)}, connects=True)


def _facts(name: str, task: str, languages: tuple[str, str] | None) -> dict[str, Any]:
    """Return what the page shows of a model; codes of unknown languages are empty."""
    codes = ["" if code in UNKNOWN else code.replace("_", "-") for code in languages or UNKNOWN]
    return {"name": name, "task": task, "codes": codes, "languages": [name_of(code) for code in codes]}
