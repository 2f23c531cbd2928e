"""Small labeled files, for the tests of taggers and readers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from attnkit.engine.resolve import resolve

NAMES = {
    "place": (["new", "old", "great"], ["york", "rome", "lima"]),
    "person": (["kim", "ada", "bob"], ["lee", "park", "cho"]),
}
"""First and second words."""
PLAIN = ["the", "tall", "man", "and", "a", "small", "dog", "went", "out", "to", "buy", "bread", "for", "her"]
TINY = [
    *("precision=float32", "device=cpu", "threads=1", "vocabulary.kind=word", "vocabulary.min_frequency=1"),
    *("model.d_model=32", "model.n_heads=2", "model.n_layers=1", "model.d_ff=64", "model.max_length=40"),
    *("model.dropout=0", "model.attention_dropout=0", "optimization.warmup_steps=10"),
]


def configure(task: str, train: Path, valid: Path | None, *sets: str) -> Any:
    flags = {"task": task, "data.files": [str(train)]} | ({"data.valid_files": [str(valid)]} if valid else {})
    return resolve(flags, sets=[*TINY, *sets], preset_name="tiny").config


def tagged(n: int, seed: int) -> list[list[tuple[str, str]]]:
    """Return sentences of words and tags, with places and persons of one word or two."""
    drawn, found = random.Random(seed), []
    for _ in range(n):
        words: list[tuple[str, str]] = []
        for _ in range(drawn.randint(1, 4)):
            words += [(word, "O") for word in drawn.choices(PLAIN, k=drawn.randint(1, 4))]
            type = drawn.choice(sorted(NAMES))
            names = [drawn.choice(part) for part in NAMES[type][: drawn.randint(1, 2)]]
            words += [(name, f"{'I' if i else 'B'}-{type}") for i, name in enumerate(names)]
        found.append(words)
    return found


def write_tagged(path: Path, sentences: list[list[tuple[str, str]]]) -> Path:
    path.write_text("\n".join("".join(f"{word}\t{tag}\n" for word, tag in words) for words in sentences))
    return path


KINDS = ("colour", "city", "animal")
THINGS = {
    "colour": ["red", "green", "blue", "white"],
    "city": ["rome", "oslo", "lima", "cairo"],
    "animal": ["cat", "dog", "owl", "newt"],
}


def asked(n: int, seed: int, impossible: float = 0.0) -> dict[str, Any]:
    """Return SQuAD's tree: a paragraph says of two or three kinds which thing it has, a question asks for one."""
    drawn, paragraphs = random.Random(seed), []
    for number in range(n):
        kinds = drawn.sample(KINDS, 2 if impossible else 3)
        things = {kind: " ".join(drawn.sample(THINGS[kind], drawn.randint(1, 2))) for kind in kinds}
        context = " ".join(f"The {kind} is {thing} ." for kind, thing in things.items())
        questions = []
        for kind in KINDS:
            there = kind in things
            if not there and drawn.random() > impossible:
                continue
            given = [{"text": things[kind], "answer_start": context.index(things[kind])}] if there else []
            question = {"id": f"{seed}-{number}-{kind}", "question": f"Which {kind} is it ?", "answers": given}
            questions.append({**question, "is_impossible": not there} if impossible else question)
        paragraphs.append({"context": context, "qas": questions})
    return {"version": "v2.0" if impossible else "1.1", "data": [{"title": "toy", "paragraphs": paragraphs}]}


def write_asked(path: Path, tree: dict[str, Any]) -> Path:
    path.write_text(json.dumps(tree))
    return path
