"""Placeholders and annotations in text: what they replace, and places before and after."""

from __future__ import annotations

import random

import pytest

from attnkit.text.inline_symbols import (
    ANNOTATION,
    N_PLACEHOLDERS,
    PLACEHOLDERS,
    TRANSLATION,
    annotate,
    mask,
    mask_pair,
    placeholders_in,
    places_in_plain,
)
from attnkit.text.word_forms import count_inflected, is_inflected

PIECES = (
    "https://a.org/x?y=1",
    "b@c.de",
    "{name}",
    "%s",
    "%s5",
    "12",
    "12:30",
    "30 %",
    "3.50",
    "a",
    "Hund,",
    "(",
    ")",
    " ",
    "  ",
)
PIECES += ("é", "冰球", "\u200b", "\t", "｟", "｠", PLACEHOLDERS[0], PLACEHOLDERS[-1], *ANNOTATION)


def draw(random: random.Random, n: int) -> str:
    numbers = [f" {random.randint(10, 999)} " for _ in range(n // 2)]
    return "".join(random.choices([*PIECES, *numbers], k=n))


@pytest.mark.parametrize("is_protected", [True, False])
def test_a_masked_text_is_restored(is_protected: bool) -> None:
    drawn = random.Random(1)
    for number in range(400):
        text = draw(drawn, 200 if number % 20 == 0 else drawn.randint(0, 50))
        masked = mask(text, is_protected=is_protected)
        assert masked.restore(masked.text) == text
        assert not any(symbol in masked.text for symbol in ANNOTATION) or len(masked.parts) == N_PLACEHOLDERS
        assert set(placeholders_in(masked.text)) == set(PLACEHOLDERS[: len(masked.parts)])
        places = masked.places(masked.text)
        assert len(places) == len(masked.text) + 1 and places[-1] == len(text)
        outside = [
            k
            for k, c in enumerate(masked.text)
            if not any(
                masked.text.startswith(s, k - i) for s in placeholders_in(masked.text) for i in range(len(s)) if i <= k
            )
        ]
        assert all(masked.text[k] == text[places[k]] for k in outside)


def test_placeholders_without_a_part_are_left_out() -> None:
    masked = mask("12 and 13")
    assert masked.restore("｟2｠ ｟3｠x ｟1｠｟1｠") == "13 x 12 12"
    assert masked.places("｟2｠ ｟3｠x") == [0, 0, 0, 2, 3, 3, 3, 3, 4]


def test_words_do_not_grow_together_with_parts() -> None:
    masked = mask("see www.a.org at 10:30 for %s5 of {n}s")
    assert masked.restore("P｟1｠um｟2｠-mal ｟3｠x｟4｠en") == "P www.a.org um 10:30-mal %sx {n}en"
    assert mask("a $5 x").restore("Geld｟1｠Herr") == "Geld $5 Herr"
    assert mask("a{n} x").restore("Geld｟1｠ Herr") == "Geld{n} Herr"
    assert mask("a {n} x").restore("冰｟1｠球") == "冰{n}球"
    assert masked.places("a｟2｠b") == [0, 1, 1, 1, 8, 9]  # "a 10:30 b"


def test_only_so_many_parts_are_masked() -> None:
    numbers = [str(number) for number in range(100, 100 + N_PLACEHOLDERS + 5)]
    masked = mask(" ".join(numbers))
    assert len(masked.parts) == N_PLACEHOLDERS and masked.text.split()[N_PLACEHOLDERS:] == numbers[N_PLACEHOLDERS:]
    assert masked.restore(masked.text) == " ".join(numbers)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("12 dogs", "12 Hunde"), ("｟1｠ dogs", "｟1｠ Hunde")),
        (("12 dogs", "zwölf Hunde"), ("12 dogs", "zwölf Hunde")),
        (("12 and 12", "12"), ("12 and 12", "12")),
        (("12 and 12", "12, 12"), ("｟1｠ and ｟1｠", "｟1｠, ｟1｠")),
        (("30 at 12:30", "um 12:30 30"), ("｟1｠ at ｟2｠", "um ｟2｠ ｟1｠")),
        (("3.50 for {a}", "3,50 für {a}"), ("3.50 for ｟1｠", "3,50 für ｟1｠")),
        (("｟3｠ 12", "｟3｠ 12"), ("｟1｠ ｟2｠", "｟1｠ ｟2｠")),
    ],
)
def test_pairs_share_their_placeholders(pair: tuple[str, str], expected: tuple[str, str]) -> None:
    assert mask_pair(*pair) == expected


def test_places_of_annotated_texts() -> None:
    drawn = random.Random(2)
    for _ in range(2000):
        text = mask(draw(drawn, drawn.randint(1, 30))).text
        cuts = sorted(drawn.sample(range(len(text) + 1), min(len(text) + 1, drawn.choice([0, 2, 4]))))
        spans = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
        inside = {k for s in placeholders_in(text) for at in [text.find(s)] for k in range(at + 1, at + len(s))}
        spans = [span for span in spans if not inside & set(span) and text[span[0]] != " "]
        terms = [(begin, end, drawn.choice(["Xa", "X b", "X球"])) for begin, end in spans]
        annotated = annotate(text, terms)
        places = places_in_plain(annotated)
        assert len(places) == len(annotated) + 1 and places[-1] == len(text)
        rest = annotated
        for symbol in ANNOTATION:
            assert rest.count(symbol) == len(terms) + text.count(symbol)
        # Every character of the text is found again, at its place, in order.
        found = {}
        for k, place in enumerate(places[:-1]):
            if place < len(text) and annotated[k] == text[place]:
                found[place] = k
        assert len(found) == len(text), (text, annotated)
        for begin, _, translation in terms:
            first = next(k for k, place in enumerate(places) if place == begin)
            at = annotated.index(f"{TRANSLATION} {translation}", first)
            assert places[at] == begin


@pytest.mark.parametrize(
    ("form", "word", "expected"),
    [
        ("Hund", "Hunde", True),
        ("Haus", "Häuser", True),
        ("schwarz", "schwarzen", True),
        ("laufen", "läuft", True),
        ("машина", "машину", True),
        ("Hund", "Hundehütte", False),
        ("Hund", "Katze", False),
        ("an", "ans", False),
        ("Mann", "Mantel", False),
        ("Hund", "Hunger", False),
        ("Kind", "Kino", False),
        ("Haus", "Haut", False),
        ("rot", "Rotor", False),
        ("man", "mango", False),
        ("einer", "ein", False),
        ("geht", "Gehweg", False),
        ("Eis", "Eisen", True),  # endings are all that is looked at
    ],
)
def test_forms_of_a_word(form: str, word: str, expected: bool) -> None:
    assert is_inflected(form, word) == expected


def test_phrases_in_other_forms() -> None:
    assert count_inflected("Der schwarzen Hunde wegen.", ["schwarzen Hund"]) == 1
    assert count_inflected("Hunde, schwarze", ["schwarzer Hund"]) == 0
    assert count_inflected("Hunde und ein Hund", ["Hund"]) == 2
    assert count_inflected("Hunde", [""]) == count_inflected("", ["Hund"]) == 0


def test_long_lines_take_no_quadratic_time() -> None:
    """Three times the work for twice the text at most, in steps of the pattern and of the lists."""
    for text in ("a-" * 30_000, "a." * 30_000, "see-the-long-" * 8_000, "｟1｠ 12 " * 8_000, "x@" * 20_000):
        mask(text)
