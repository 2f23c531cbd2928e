"""Entities in tags and their scores: seqeval's own numbers, counts by hand, and a naive count of well-formed tags."""

from __future__ import annotations

import random

import pytest

from attnkit.metrics.labels import span_scores
from attnkit.protocols import Entity, entities

# (expected, found, (precision, recall, F1, accuracy)): what seqeval 1.2.2 says (its default mode, zero_division=0).
SEQEVAL = [
    (
        "O O O B-MISC I-MISC I-MISC O | B-PER I-PER O",
        "O O B-MISC I-MISC I-MISC I-MISC O | B-PER I-PER O",
        (0.5, 0.5, 0.5, 0.8),
    ),
    ("B-PER I-PER O B-LOC", "I-PER I-PER O I-LOC", (1.0, 1.0, 1.0, 0.5)),  # an I after O begins an entity
    ("B-PER I-PER B-PER O", "I-PER I-PER I-PER O", (0.0, 0.0, 0.0, 0.5)),  # but continues with one of its type
    ("B-PER I-LOC O B-LOC I-LOC", "B-PER I-PER O B-LOC I-PER", (0.0, 0.0, 0.0, 0.6)),  # another type begins one
    ("S-PER O B-LOC I-LOC E-LOC", "S-PER O B-LOC E-LOC E-LOC", (1 / 3, 0.5, 0.4, 0.8)),  # after an E another begins
    ("O E-PER I-PER O", "O S-PER S-PER O", (1.0, 1.0, 1.0, 0.5)),
    (
        "B-creative-work I-creative-work O | B-person",
        "B-creative-work I-creative-work I-creative-work | B-creative-work",
        (0.0, 0.0, 0.0, 0.5),
    ),
    ("O O", "O B-PER", (0.0, 0.0, 0.0, 0.5)),
    ("B-PER | I-PER O", "B-PER | B-PER O", (1.0, 1.0, 1.0, 2 / 3)),  # a sentence's end ends its entities
]


def split(text: str) -> list[list[str]]:
    return [sentence.split() for sentence in text.split("|")]


@pytest.mark.parametrize(("expected", "found", "numbers"), SEQEVAL)
def test_scores_are_seqevals(expected: str, found: str, numbers: tuple[float, ...]) -> None:
    scores = span_scores(split(found), split(expected))
    ours = scores.all.precision, scores.all.recall, scores.all.f1, scores.accuracy
    assert ours == pytest.approx([100 * number for number in numbers])


def test_types_are_scored_by_themselves() -> None:
    # PER: both found and both right; LOC: one found, wrong, and one expected; MISC: found only.
    expected = split("B-PER O B-LOC I-LOC | B-PER I-PER O")
    found = split("B-PER O B-LOC O | B-PER I-PER B-MISC")
    scores = span_scores(found, expected)
    assert list(scores.by_type) == ["LOC", "MISC", "PER"]
    assert [(s.right, s.found, s.expected) for s in scores.by_type.values()] == [(0, 1, 1), (0, 1, 0), (2, 2, 2)]
    assert scores.by_type["PER"].f1 == 100 and scores.by_type["MISC"].precision == 0
    assert (scores.all.precision, scores.all.recall) == pytest.approx((50, 200 / 3))


def test_a_type_keeps_its_hyphens_and_may_be_missing() -> None:
    assert entities(["B-creative-work", "I-creative-work", "B"]) == [Entity("creative-work", 0, 2), Entity("", 2, 3)]


def test_last_and_unit_are_read_as_end_and_single() -> None:
    # Neither continues: an I after an L, and a U after a B, begin entities.
    assert entities(["B-PER", "L-PER", "I-PER", "O", "U-LOC", "U-LOC", "B-LOC", "U-LOC", "L-LOC"]) == [
        *(Entity("PER", 0, 2), Entity("PER", 2, 3), Entity("LOC", 4, 5), Entity("LOC", 5, 6)),
        *(Entity("LOC", 6, 7), Entity("LOC", 7, 8), Entity("LOC", 8, 9)),
    ]
    scores = span_scores(split("B-PER L-PER O U-LOC"), split("B-PER E-PER O S-LOC"))
    assert (scores.all.right, scores.all.f1, scores.accuracy) == (2, 100, 50)


def test_other_letters_name_no_entities() -> None:
    assert entities(["0", "B-PER", "NN-PER", "I-PER", "X", "-"]) == [Entity("PER", 1, 2), Entity("PER", 3, 4)]


@pytest.mark.parametrize("seed", range(10))
def test_well_formed_tags_give_the_entities_they_were_made_of(seed: int) -> None:
    drawn = random.Random(seed)
    for bioes in (False, True):
        tags: list[str] = []
        made = []
        while len(tags) < 30:
            n, type = drawn.randint(1, 3), drawn.choice(("PER", "LOC"))
            if drawn.random() < 0.4:
                tags += ["O"] * n
                continue
            made.append(Entity(type, len(tags), len(tags) + n))
            letters = ["B", *"I" * (n - 1)]
            if bioes:
                letters[-1] = "E" if n > 1 else "S"
            tags += [f"{letter}-{type}" for letter in letters]
        assert entities(tags) == made


def test_tags_that_do_not_pair_up_are_refused() -> None:
    for found, expected in ((["O"], ["O", "O"]), ([], [])):
        with pytest.raises(ValueError, match="one predicted tag per gold tag"):
            span_scores([found], [expected])
