"""The page at ``/``: translation while typing, and forms for other tasks."""

from __future__ import annotations

from typing import Any

from attnkit.plotting.html import as_json, render_page
from attnkit.quality.language_names import name_of
from attnkit.serving.models import Models

HERE = "attnkit.serving.page"


def page(models: Models, *, needs_key: bool) -> str:
    """Return the page for the models of a service; it loads nothing but their answers."""
    served = [_facts(model.name, model.task, model.spec.languages) for model in models.by_name.values()]
    data = {"models": served, "needsKey": needs_key, "maxCharacters": models.limits.max_characters}
    return render_page(HERE, ["panes.js", "forms.js"], "attnkit", {"DATA": as_json(data)}, connects=True)


def _facts(name: str, task: str, languages: tuple[str, str] | None) -> dict[str, Any]:
    src, tgt = languages or ("", "")
    return {"name": name, "task": task, "source": name_of(src), "target": name_of(tgt)}
