"""Scattered lines in a third language: found and named, and silence where text is only of another kind."""

from __future__ import annotations

import random
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from attnkit.quality.clean import clean
from attnkit.quality.clean_output import CleanRequest
from attnkit.quality.config import CleanConfig
from attnkit.quality.doctor import examine_pair
from attnkit.quality.foreign_lines import find_foreign_lines
from attnkit.quality.judgement import Span, judge_span
from attnkit.quality.language_names import find_language
from attnkit.text.toy.corpus import make_files

N = 2000
PARTS = {
    "German": (
        "Der alte Mann|Die Frau mit dem Hut|Ein kleines Kind|Meine Schwester|Unser Lehrer|Der Hund des Nachbarn",
        "wartet auf den Zug|liest ein Buch über Vögel|ist nicht zu Hause|geht durch die Stadt|kocht für seine Gäste",
        "im Winter|und auch heute|bei jedem Wetter|mit einem Freund|vor der großen Brücke|wie immer",
    ),
    "Spanish": (
        "El viejo profesor|La mujer del sombrero|Un niño pequeño|Mi hermana mayor|El perro de los vecinos",
        "espera el tren|lee un libro sobre los pájaros|no está en casa|camina por la ciudad|cocina para todos",
        "en invierno|como siempre|con una amiga|y también hoy|cerca del puente|desde que llegó la lluvia",
    ),
    "Polish": (
        "Stary nauczyciel|Kobieta w kapeluszu|Małe dziecko|Moja starsza siostra|Pies sąsiadów|Nasz przyjaciel z miasta",
        "czeka na pociąg|nie jest w domu|czyta książkę o ptakach|idzie przez miasto|już się nie boi|gotuje dla gości",
        "jak zawsze|z przyjacielem|ale nie dzisiaj|za mostem|od rana do wieczora|po deszczu, a potem w lesie",
    ),
}  # fmt: skip


@cache  # half a second
def toy() -> tuple[list[str], list[str]]:
    files = make_files("english-french", N, 5, n_valid=2, n_test=2)
    return list(files["train.en"]), list(files["train.fr"])


def sentences(language: str) -> list[str]:
    parts = [part.split("|") for part in PARTS[language]]
    return [f"{who} {does} {how}." for who, does, how in product(*parts)]


def find(lines: list[str], other: list[str]) -> tuple[set[int], str]:
    flags, named = find_foreign_lines(lines, other, np.zeros(len(lines)))
    return set(flags.nonzero()[0].tolist()), named


def scattered(lines: list[str], others: list[str], n: int) -> tuple[list[str], set[int]]:
    """Replace n lines by others, drawn."""
    draw, mixed = random.Random(n), list(lines)
    places = draw.sample(range(len(lines)), n)
    for place, line in zip(places, (others * (1 + n // len(others)))[:n], strict=True):
        mixed[place] = line
    return mixed, set(places)


@pytest.mark.parametrize("language", PARTS)
@pytest.mark.parametrize("n", [12, 80, 400])
def test_scattered_lines_are_found_and_named(language: str, n: int) -> None:
    src, tgt = toy()
    mixed, places = scattered(tgt, random.Random(1).sample(sentences(language), min(n, 125)), n)
    found, named = find(mixed, src)
    assert len(found & places) >= 0.95 * n and len(found - places) <= 0.02 * n
    assert named == language


def test_lines_of_a_large_side_are_found_beyond_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnkit.quality.foreign_lines._SAMPLE", N // 4)
    src, tgt = toy()
    mixed, places = scattered(tgt, sentences("German"), 120)
    found = find(mixed, src)[0]
    assert len(found & places) >= 114 and len(found - places) <= 2


def test_both_languages_of_a_corpus_are_no_third_one() -> None:
    src, tgt = toy()
    for own, other in ((src, tgt), (tgt, src)):
        assert not find(own, other)[0]
        mixed, _ = scattered(own, other, 100)
        assert not find(mixed, other)[0]


def test_untranslated_lines_beside_a_third_language_are_still_untranslated() -> None:
    src, tgt = toy()
    mixed, third = scattered(tgt, sentences("German"), 40)
    mixed, untranslated = scattered(mixed, src[::-1], 60)
    mixed = [line * 30 if number in (3, 700) else line for number, line in enumerate(mixed)]  # long lines of its own
    languages = judge_span(Span(0, src, mixed)).languages
    found = set(languages.foreign[1][0].nonzero()[0].tolist())
    assert len(found & third - untranslated) >= 0.95 * len(third - untranslated)
    assert found <= third and not languages.foreign[0][0].any()


def test_text_of_another_kind_is_no_other_language() -> None:
    """Commands and code have a few words of many languages, and look like nothing else on their side."""
    src, tgt = toy()
    draw = random.Random(2)
    words = ["run", "get", "set", "args", "dir", "size", "model", "token", "vocab", "step", "out"]
    drawn = [draw.choices(words, k=4) for _ in range(300)]
    few = [" el los por con una"] + [""] * 9
    code = [f"{a}_{i} = {b} {c}(x{i}, --{d} {i % 7}){few[i % 10]}" for i, (a, b, c, d) in enumerate(drawn)]
    mixed, places = scattered(src, code, 300)
    assert len(places) == 300 and not find(mixed, tgt)[0]
    names = ["São Paulo Futebol Clube", "Los Angeles, El Paso", "Rio de Janeiro", "Anna Müller, Köln", "Le Monde"]
    assert not find(scattered(src, names, 60)[0], tgt)[0]


def test_a_side_of_unknown_language_is_not_judged() -> None:
    files = make_files("code", 800, 5, n_valid=2, n_test=2)
    src, code = list(files["train.src"]), list(files["train.tgt"])
    mixed, _ = scattered(code, sentences("German"), 50)
    assert find_language(mixed) is None and not find(mixed, src)[0]
    assert not find([], src)[0]


def test_check_counts_them_once_and_clean_drops_them(tmp_path: Path) -> None:
    src, tgt = toy()
    mixed, places = scattered(tgt, sentences("German"), 80)
    paths = tmp_path / "a.en", tmp_path / "a.fr"
    for path, lines in zip(paths, (src, mixed), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    report = examine_pair(*paths)
    (found,) = [f for f in report.findings if "language" in f.name]
    assert (found.name, found.side, found.first_line) == ("other_language", "target", min(places) + 1)
    assert found.count >= 76 and report.verdict == f"{found.count} target lines are in German (4 %)."
    assert (report.severity, report.remedy[0]) == ("warning", "clean")
    done = clean(CleanRequest(*paths, tmp_path / "out", CleanConfig()))
    assert done.dropped["target_in_other_language"] == found.count
    assert clean(CleanRequest(*paths, tmp_path / "all", CleanConfig(check_languages=False))).kept > N - 80
    again = examine_pair(tmp_path / "out/a.en", tmp_path / "out/a.fr")
    assert again.severity == "good" and not any("language" in f.name for f in again.findings)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Hunden og katten er ikke i huset, men barnet er på broen med en mand, og det er meget for mig.", "da"),
        ("Hunden og katten er ikke i huset, men barnet er på broen med en mann, og det er mye for meg.", "nb"),
        ("Suns un kaķis nav mājā, bet bērns ir uz tilta ar vīru, un tas ir par daudz vai ne.", "lv"),
        ("Šuo ir katė yra ne namuose, bet vaikas yra ant tilto su vyru, ir tai jau per daug, kad jis po to.", "lt"),
        ("Pes in mačka nista v hiši, ampak je otrok na mostu z moškim, ki pa je bil tam že od jutra za to.", "sl"),
    ],
)  # fmt: skip
def test_neighbours_among_languages_are_told_apart(text: str, code: str) -> None:
    assert find_language([text] * 20) == code
