"""The language of docstrings, help texts and messages: the field's terms, plain English (CONTRIBUTING, "Language")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "attnkit"
PARAPHRASES = re.compile(
    r"\b(hidden (words?|tokens?)|go(es|ing)? on|beg[aiu]ns? with|told|made before|what stands|giver|lay(ing)? beside)\b"
    r"|\bstands? (for|in|where|beside|before|after|there)\b",
    re.IGNORECASE,
)
"""Paraphrases of terms that the field has: masked, resume, prefix, report, existing, provider."""
NOTHING = re.compile(r"\b(?<!there )(is|are|was) no (?!longer\b|more\b|matter\b)", re.IGNORECASE)
"""As a predicate: "X is not a ...", "no such file: X"."""
RATE = re.compile(
    r"\b(one|once|twice|each|every|times|\d+) ((?!of |in |as |is |to |that |with |for |ends? |which )\w+ ){0,2}"
    r"an? (line|row|step|batch|token|sentence|word|epoch|run|thread|file)\b"
)
"""A rate is "per": "one object per line"."""
HELP_STARTS = re.compile(r"(of|what|how|the same|whether it)\b", re.IGNORECASE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of docstrings, of the texts under fields, and of texts that calls are given."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
        elif isinstance(node, ast.Call):
            for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
                for part in value.values if isinstance(value, ast.JoinedStr) else [value]:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value:
                        yield part.lineno, part.value


def helps(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the help of options and arguments."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("Option", "Argument"):
            for keyword in node.keywords:
                if keyword.arg == "help" and isinstance(keyword.value, ast.Constant):
                    yield node.lineno, keyword.value.value


def test_texts_use_the_terms_of_the_field() -> None:
    wrong = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES)
        for line, text in texts(path):
            plain = " ".join(text.split())
            for rule in (PARAPHRASES, NOTHING, RATE):
                if found := rule.search(plain):
                    wrong.append(f"{name}:{line}: {plain[max(0, found.start() - 30) : found.end() + 30]}")
        wrong += [f"{name}:{line}: {text}" for line, text in helps(path) if HELP_STARTS.match(text)]
    assert wrong == []


def test_first_lines_of_docstrings_fit_80_characters() -> None:
    long = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                first = (ast.get_docstring(node) or "").split("\n")[0]
                if len(first) > 80:
                    long.append(f"{path.relative_to(SOURCES)}:{getattr(node, 'lineno', 1)}: {len(first)} characters")
    assert long == []
