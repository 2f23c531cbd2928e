"""The notebooks of the examples: their form; in ``make slow`` they are executed, with bounds on their results."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import attnkit

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
Results = dict[str, Any]


def check_attention(found: Results) -> None:
    assert found["difference_from_library"] < 1e-5
    assert found["exact_with_attention"] >= 80 and found["exact_without_attention"] <= 75
    assert found["exact_with_attention"] > found["exact_without_attention"] + 15
    assert found["on_diagonal"] >= 60


def check_translator(found: Results) -> None:
    assert found["beam"] >= 45 and found["beam"] > found["word_by_word"] + 15
    assert 15 <= found["word_by_word"] <= 40 and found["greedy"] > found["word_by_word"] + 12
    assert found["exact_high_scores"] > found["exact_low_scores"] + 10
    assert found["preferred"] >= 85 and found["prefix"].startswith("Cette") and "caisse" in found["glossary"]


def check_bert_and_gpt(found: Results) -> None:
    assert found["bert_loss"] < found["unigram_loss"] - 1 and found["gpt_loss"] < found["unigram_loss"] - 2
    assert found["bert_accuracy"] > 2 * found["unigram_accuracy"]
    assert found["gpt_accuracy"] > 3 * found["unigram_accuracy"]
    assert found["gpt_looks_ahead"] == 0 < 0.05 < found["bert_looks_ahead"]
    assert found["first_word"][0] > found["first_word"][1] + 0.5 and found["new_samples"] >= 50
    assert found["tense_accuracy"] > found["tense_majority"] + 12


def check_word_vectors(found: Results) -> None:
    assert found["chance"] <= 25 and found["counted"] >= 65 and found["glove"] >= 50
    assert found["skip-gram"] >= 75 and found["cbow"] >= 75
    assert found["odd"] == ["took", "garden"] and found["analogies"] >= 35


CHECKS: dict[str, Callable[[Results], None]] = {
    "attention": check_attention,
    "bert-and-gpt": check_bert_and_gpt,
    "translator": check_translator,
    "word-vectors": check_word_vectors,
}
UNTRAINED: dict[str, Results] = {
    "attention": {
        "difference_from_library": 0.0,
        "exact_with_attention": 1.0,
        "exact_without_attention": 1.0,
        "on_diagonal": 15.0,
    },
    "bert-and-gpt": {
        "unigram_loss": 5.5,
        "unigram_accuracy": 9.0,
        "bert_loss": 5.2,
        "bert_accuracy": 9.0,
        "gpt_loss": 5.2,
        "gpt_accuracy": 9.0,
        "gpt_looks_ahead": 0.0,
        "bert_looks_ahead": 0.2,
        "first_word": [-4.0, -4.0],
        "new_samples": 100.0,
        "tense_accuracy": 41.0,
        "tense_majority": 41.0,
    },
    "translator": {
        "word_by_word": 26.0,
        "greedy": 0.1,
        "beam": 0.1,
        "exact": 0.0,
        "exact_low_scores": 0.0,
        "exact_high_scores": 0.0,
        "preferred": 50.0,
        "prefix": "Cette",
        "glossary": "caisse",
    },
    "word-vectors": {
        "chance": 11.0,
        "counted": 11.0,
        "skip-gram": 11.0,
        "cbow": 11.0,
        "glove": 11.0,
        "odd": ["took", "garden"],
        "analogies": 1.0,
    },
}
"""What each notebook would compute with models that learned nothing."""


def read(name: str) -> Any:
    return nbformat.read(ROOT / "examples" / "notebooks" / f"{name}.ipynb", as_version=4)


def code_of(book: Any) -> list[str]:
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


def test_every_notebook_has_bounds_and_is_listed() -> None:
    assert NAMES == sorted(CHECKS) == sorted(UNTRAINED)
    for page in ("docs/guides/notebooks.md", "examples/README.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert all(f"notebooks/{name}.ipynb" in text for name in NAMES), page


@pytest.mark.parametrize("name", NAMES)
def test_the_bounds_reject_models_that_learned_nothing(name: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[name](UNTRAINED[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_without_outputs(name: str) -> None:
    book = read(name)
    nbformat.validate(book)
    assert all(cell.outputs == [] and cell.execution_count is None for cell in book.cells if cell.cell_type == "code")
    assert len({cell.id for cell in book.cells}) == len(book.cells)
    assert (ROOT / "examples" / "notebooks" / f"{name}.ipynb").stat().st_size < 40_000


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_explains_and_ends_with_what_it_computed(name: str) -> None:
    book = read(name)
    texts = [cell.source for cell in book.cells if cell.cell_type == "markdown"]
    assert texts[0].startswith("# ") and "on one core" in texts[0]
    assert len(texts) >= 0.8 * len(code_of(book)), "explanations between the cells"
    assert texts[-2] == "## What was computed" and texts[-1].startswith("Things to try:\n\n- ")
    assert re.match(r"results = \{", code_of(book)[-1]) and code_of(book)[-1].endswith("\nresults")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_needs_attnkit_alone(name: str) -> None:
    """What attnkit depends on is there too; names of attnkit that are used exist."""
    trees = [ast.parse(code) for code in code_of(read(name))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    modules = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert {module.split(".")[0] for module in modules} <= {"attnkit", "numpy", "torch", *sys.stdlib_module_names}
    used = [
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "attnkit"
    ]
    assert used and [attribute for attribute in used if attribute not in attnkit.__all__] == []


@pytest.mark.slow(every_part=True)
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_computes_what_it_says(name: str, tmp_path: Path) -> None:
    book = read(name)
    book.cells.append(nbformat.v4.new_code_cell("import json\n\nprint(json.dumps(results))"))
    NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    (printed,) = book.cells[-1].outputs
    CHECKS[name](json.loads(printed["text"]))
    pages = [
        output["data"]["text/html"]
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]
    assert any('aria-valuenow="100"' in page for page in pages), "a bar at its end"
    assert any("<svg" in page or "<table" in page for page in pages) and not any("<script" in page for page in pages)
