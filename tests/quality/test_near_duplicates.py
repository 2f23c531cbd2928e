"""Pairs that repeat an earlier one but for a word or two are found; those that are merely alike are not."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from attnkit.quality import check as check_module
from attnkit.quality import near_duplicates
from attnkit.quality.check import check_pair
from attnkit.quality.clean import clean
from attnkit.quality.clean_output import CleanRequest
from attnkit.quality.config import CleanConfig
from attnkit.quality.near_duplicates import NearDuplicateFinder, bigrams
from attnkit.text.toy.corpus import make_files

Pair = tuple[str, str]
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "lm", "rn", "st", "x")]


def words_of(line: str) -> list[str]:
    """Return words by a regular expression: Chinese characters one by one, and no marks."""
    return re.findall("[\u4e00-\u9fff]|[^\\W_\u4e00-\u9fff]+", line.lower())


def named_bigrams(pair: Pair) -> set[tuple[int, str, str]]:
    found = set()
    for side, line in enumerate(pair):
        if words := ["", *words_of(line), ""] if line else []:
            found |= {(side, *both) for both in pairwise(words)}
    return found


def are_near(one: Pair, other: Pair, corpus: list[Pair]) -> bool:
    """The definition, pair by pair."""
    a, b = named_bigrams(one), named_bigrams(other)
    counts = Counter(gram for pair in corpus for gram in named_bigrams(pair))
    n_rare = sum(counts[gram] <= max(5, len(corpus) // 1000) for gram in a & b)
    numbers = [sorted(w for line in pair for w in words_of(line) if re.search("[0-9]", w)) for pair in (one, other)]
    if numbers[0] != numbers[1]:
        return False
    return min(len(a), len(b)) >= 16 and len(a & b) >= 0.65 * len(a | b) and n_rare >= 4


def sentence(draw: random.Random, n: int) -> str:
    return " ".join(draw.choices(WORDS, k=n)).capitalize() + "."


def corpus_with_repeats(n: int, n_repeats: int) -> tuple[list[Pair], list[int]]:
    """Return pairs, and for each of the last ``n_repeats`` the place of the one that it repeats."""
    draw = random.Random(7)
    pairs = [(sentence(draw, draw.randint(9, 15)), sentence(draw, draw.randint(9, 15))) for _ in range(n)]
    origins = draw.sample(range(n), n_repeats)
    for i in origins:
        sides = []
        for line in pairs[i]:
            words = line.split()
            place = draw.randrange(len(words))
            words[place : place + draw.randint(0, 1)] = [draw.choice(WORDS)]  # added, or in place of another
            sides.append(" ".join(words).upper() if i % 2 else " ".join(words))
        pairs.append((sides[0], sides[1]))
    return pairs, origins


def find(pairs: list[Pair], step: int = 500) -> list[int]:
    finder = NearDuplicateFinder()
    for begin in range(0, len(pairs), step):
        finder.add(pairs[begin : begin + step])
    found: list[int] = finder.repeats().tolist()
    return found


def test_bigrams_are_those_of_a_regular_expression() -> None:
    lines = [
        "A dog, a DOG!",
        "",
        "x",
        "...",
        "一只狗 runs 在 dog",
        "a-b  c's",
        "ÄÖÜ äöü \u00e9t\u00e9",
        "A dog",
        "\x00 a dog",
    ]
    for side in (0, 1):
        keys, _ = bigrams(lines, side)
        numbers: dict[int, set[tuple[str, str]]] = {}
        for number, line in enumerate(lines):
            hashes = (keys[keys >> np.uint64(32) == number] & np.uint64(0xFFFFFFFF)).tolist()
            words = ["", *words_of(line.replace("\x00", " ")), ""]
            named = list(pairwise(words)) if line and words != ["", ""] else []
            assert len(hashes) == len(named), line
            for hashed, gram in zip(hashes, named, strict=True):
                numbers.setdefault(hashed, set()).add(gram)
        assert all(len(grams) == 1 for grams in numbers.values())
        assert len(numbers) == len({gram for grams in numbers.values() for gram in grams})
    assert not {*bigrams(lines, 0)[0].tolist()} & {*bigrams(lines, 1)[0].tolist()}  # sides are told apart


def test_a_word_has_one_hash_at_any_place() -> None:
    far = "x " * 900 + "a dog"
    near = bigrams(["a dog"], 0)[0].tolist()
    assert near[1] in bigrams([far], 0)[0].tolist()
    assert near[1] in (bigrams(["y " * 900, "a dog"], 0)[0] - (1 << 32)).tolist()


def test_pairs_that_differ_in_a_number_are_no_repeats() -> None:
    pairs, _ = corpus_with_repeats(3000, 0)
    src, tgt = pairs[5]
    made = [(f"{src} Room {n}.", f"{tgt} Zimmer {n}.") for n in (12, 13)]
    made.append((f"{src} Green room 12.", made[0][1]))
    assert find([*pairs, *made]) == [3002]
    (_, one_hash), (_, other) = bigrams(["room 12, 7"], 0), bigrams(["7 rooms: 12"], 0)
    assert one_hash.tolist() == other.tolist() != bigrams(["room 12"], 0)[1].tolist()


def test_repeats_with_a_word_changed_or_added_are_found() -> None:
    pairs, origins = corpus_with_repeats(3000, 300)
    found = find(pairs)
    assert min(found) >= 3000, "pairs that repeat nothing"
    assert len(found) >= 0.95 * 300
    grams = [named_bigrams(pair) for pair in pairs]
    counts = Counter(gram for own in grams for gram in own)
    for number, origin in enumerate(origins, 3000):
        shared = grams[number] & grams[origin]
        is_near = len(shared) >= 0.65 * len(grams[number] | grams[origin])
        is_near &= min(len(grams[number]), len(grams[origin])) >= 16
        is_near &= sum(counts[gram] <= 5 for gram in shared) >= 4
        assert is_near or number not in found
    assert find(pairs, 3300) == find(pairs, 1) == found  # however they are added


def test_a_repeat_of_a_repeat_and_short_pairs() -> None:
    pairs, _ = corpus_with_repeats(40, 0)
    a, b = pairs[0]
    again = (f"{a} again", b)
    assert find([*pairs, again, (f"{a} once again", b)]) == [40, 41]
    assert find([*pairs, ("no dog", "kein Hund"), ("no cat", "kein Hund")]) == []
    assert find([]) == find([("", "")] * 5) == find([(a, b)]) == find([(a, ""), (a, "")]) == []
    assert are_near(pairs[0], again, [*pairs, again]) and not are_near(pairs[0], pairs[1], pairs)


def test_lines_of_a_template_are_merely_alike() -> None:
    """Programs and their descriptions share most words with others; few of these words are rare."""
    for kind, most in (("code", 0), ("reverse", 0), ("summary", 0), ("english-french", 40)):
        made = make_files(kind, 8000, 1, n_valid=1, n_test=1)  # type: ignore[arg-type]
        src, tgt = (list(lines) for name, lines in sorted(made.items()) if name.startswith("train"))
        assert len(find(list(zip(src, tgt, strict=True)))) <= most, kind


def test_what_is_known_is_not_compared_and_pairs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, _ = corpus_with_repeats(200, 20)
    finder = NearDuplicateFinder()
    finder.add(pairs)
    assert len(found := finder.repeats()) > 15
    assert finder.repeats(found).tolist() == [] and finder.repeats(found[1:]).tolist() == [found[0]]
    assert finder.repeats(np.array([10_000])).tolist() == found.tolist()  # beyond those that were taken
    monkeypatch.setattr(near_duplicates, "MAX_PAIRS", 205)
    finder = NearDuplicateFinder()
    for pair in pairs:
        finder.add([pair])
    assert finder.n_pairs == 205 and finder.repeats().tolist() == [i for i in found if i < 205]


def test_check_and_clean_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, _ = corpus_with_repeats(2000, 100)
    pairs += [pairs[3], (pairs[4][0].upper(), pairs[4][1])]  # an exact repeat, and one but for case
    src, tgt = tmp_path / "a.src", tmp_path / "a.tgt"
    src.write_text("".join(f"{pair[0]}\n" for pair in pairs))
    tgt.write_text("".join(f"{pair[1]}\n" for pair in pairs))
    found = {finding.name: finding for finding in check_pair(src, tgt).findings}
    assert (found["duplicate"].count, found["near_duplicate"].first_line) == (1, 2001)
    config = CleanConfig(duplicates="near", check_languages=False)
    report = clean(CleanRequest(src, tgt, tmp_path / "out", config, n_processes=1))
    assert report.dropped == {"near_duplicate": 1 + found["near_duplicate"].count} and report.kept <= 2005
    assert found["near_duplicate"].described.endswith("repeat an earlier pair but for case, marks or few words")
    for module in (near_duplicates, check_module):
        monkeypatch.setattr(module, "MAX_PAIRS", 2050)
    found = {finding.name: finding for finding in check_pair(src, tgt).findings}
    assert 45 <= found["near_duplicate"].count <= 51  # with the one but for case
    assert found["near_duplicate"].described.endswith("(words: among the first 2,050 pairs)")


def test_a_pair_that_is_dropped_anyway_is_no_original(tmp_path: Path) -> None:
    pairs, _ = corpus_with_repeats(50, 0)
    src, tgt = tmp_path / "a.src", tmp_path / "a.tgt"
    damaged = pairs[0][0].replace("a", "\ufffd", 1)
    src.write_text("".join(f"{line}\n" for line in [damaged, *(pair[0] for pair in pairs)]))
    tgt.write_text("".join(f"{line}\n" for line in [pairs[0][1], *(pair[1] for pair in pairs)]))
    config = CleanConfig(duplicates="near", check_languages=False)
    report = clean(CleanRequest(src, tgt, tmp_path / "out", config, n_processes=1))
    assert report.dropped == {"undecodable": 1}
