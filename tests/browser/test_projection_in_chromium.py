"""The page of word vectors in a browser: neighbours, search, names that do not overlap, keys, pointer, themes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Browser
from looked import quiet
from test_hostile_page import ELEMENTS, PAYLOADS
from test_page_in_chromium import contrast, luminance

from attnkit.plotting.html.projection import Projection, build_projection, unit

DRAWN = np.random.default_rng(1)
N = 10_000
WORDS = ["the", "hotel", "motel", "Motel 6", *(f"word{i}" for i in range(4, N))]
VECTORS = DRAWN.normal(size=(N, 30)).astype(np.float32)
VECTORS[2] = VECTORS[1] + 0.1 * VECTORS[2]
POINTS = DRAWN.normal(size=(N, 2)) * [3.0, 1.0]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("projection") / "words.html"
    facts = {"vectors": "vectors", "words": "the first 10,000 of 12,000"}
    path.write_text(build_projection(Projection(WORDS, POINTS, VECTORS, "A note.", facts)), encoding="utf-8")
    return path


def opened(browser: Browser, page: Path, width: int = 1400, *, dark: bool = False) -> None:
    browser.open(page, width, dark=dark)
    for _ in range(50):  # the vectors are unpacked first
        if browser.ask("document.querySelector('#canvas').labels !== undefined"):
            return
        browser.settle()
    raise AssertionError("nothing was drawn")


def typed(browser: Browser, text: str) -> list[str]:
    browser.ask(
        f"(() => {{ const box = document.querySelector('#search'); box.focus(); box.value = {text!r};"
        " box.dispatchEvent(new Event('input')); })()"
    )
    return list(browser.ask("[...document.querySelectorAll('#found li')].map((each) => each.textContent)"))


def labels(browser: Browser) -> list[dict[str, Any]]:
    browser.settle()
    return list(browser.ask("document.querySelector('#canvas').labels"))


def neighbours(browser: Browser) -> list[tuple[str, float]]:
    rows = browser.ask(
        "[...document.querySelectorAll('#near li')].map((row) => [...row.children].map((e) => e.textContent))"
    )
    return [(word, float(cosine)) for word, cosine in rows]


def chosen(browser: Browser) -> str:
    browser.settle()
    return str(browser.ask("document.querySelector('#word-title').textContent"))


def mouse(browser: Browser, kind: str, x: float, y: float, **more: Any) -> None:
    place = browser.ask("(({ left, top }) => [left, top])(document.querySelector('#canvas').getBoundingClientRect())")
    browser.send("Input.dispatchMouseEvent", type=kind, x=place[0] + x, y=place[1] + y, **more)


def click(browser: Browser, x: float, y: float) -> None:
    mouse(browser, "mouseMoved", x, y)
    for kind in ("mousePressed", "mouseReleased"):
        mouse(browser, kind, x, y, button="left", clickCount=1)
    browser.settle()


def test_names_do_not_overlap(browser: Browser, page: Path) -> None:
    opened(browser, page)
    for _ in range(4):
        areas = labels(browser)
        assert len(areas) > 40
        box = np.array([[area[side] for side in ("left", "right", "top", "bottom")] for area in areas])
        across = (box[:, None, 0] < box[None, :, 1]) & (box[None, :, 0] < box[:, None, 1])
        upright = (box[:, None, 2] < box[None, :, 3]) & (box[None, :, 2] < box[:, None, 3])
        assert (across & upright).sum() == len(areas), "each overlaps itself alone"
        assert box[:, :2].min() >= 0 and box[:, 2:].min() >= 0
        browser.ask("document.querySelector('#closer').click()")
    assert WORDS[areas[0]["word"]]  # numbers of words
    quiet(browser)


def test_the_most_frequent_words_are_named_first(browser: Browser, page: Path) -> None:
    opened(browser, page)
    numbers = [area["word"] for area in labels(browser)]
    assert numbers[0] == 0 and numbers == sorted(numbers)


def test_neighbours_are_the_nearest_by_cosine(browser: Browser, page: Path) -> None:
    opened(browser, page)
    rows = unit(VECTORS)
    for word in ("motel", "word5000", "the"):
        typed(browser, word)
        browser.key("Enter")
        assert chosen(browser) == word
        cosines = rows @ rows[WORDS.index(word)]
        cosines[WORDS.index(word)] = -2
        best = np.sort(cosines)[::-1]
        found = neighbours(browser)
        assert len(found) == 12
        for place, (other, cosine) in enumerate(found):
            assert cosines[WORDS.index(other)] == pytest.approx(best[place], abs=0.01)
            assert cosine == pytest.approx(cosines[WORDS.index(other)], abs=0.015)
    typed(browser, "hotel")
    browser.key("Enter")
    browser.settle()
    assert neighbours(browser)[0][0] == "motel" and labels(browser)[0]["word"] == WORDS.index("hotel")
    browser.ask("document.querySelector('#near button').click()")
    assert chosen(browser) == "motel"
    assert browser.ask("document.activeElement === document.querySelector('#near button')")
    quiet(browser)


def test_the_search_finds_words_whatever_their_case(browser: Browser, page: Path) -> None:
    opened(browser, page)
    assert typed(browser, "MOTEL") == ["motel", "Motel 6"]
    assert typed(browser, "otel") == ["hotel", "motel", "Motel 6"]
    assert browser.ask("document.querySelector('#search').getAttribute('aria-expanded')") == "true"
    browser.key("ArrowDown")
    browser.key("ArrowDown")
    assert browser.ask("document.querySelector('#search').getAttribute('aria-activedescendant')") == "found-1"
    assert browser.ask("document.querySelector('#found [aria-selected=true]').textContent") == "motel"
    browser.key("Enter")
    assert chosen(browser) == "motel"
    assert browser.ask("document.querySelector('#found').hidden") is True
    assert typed(browser, "nowhere") == []
    assert browser.ask("document.querySelector('#none').textContent") == "None of the 10,000 words contains this text."
    assert typed(browser, "word12") and len(typed(browser, "word12")) == 10
    browser.key("Escape")
    assert browser.ask("document.querySelector('#found').hidden") is True


def test_the_pointer_reads_chooses_moves_and_zooms(browser: Browser, page: Path) -> None:
    opened(browser, page)
    area = next(area for area in labels(browser) if area["left"] > 200 and area["top"] > 100)
    sight = "document.querySelector('#note').textContent"
    assert "10,000 of 10,000 words are visible" in browser.ask(sight)
    mouse(browser, "mouseWheel", area["left"] - 5, area["top"] + 8, deltaX=0, deltaY=-1200)
    browser.settle()
    assert "10,000 of 10,000 words are visible" not in browser.ask(sight)
    after = next(each for each in labels(browser) if each["word"] == area["word"])
    assert abs(after["top"] - area["top"]) < 60, "what is pointed at stays where it is"
    x = after["left"] - 5 if after["left"] > area["left"] - 20 else after["right"] + 5
    click(browser, x, after["top"] + 8)
    name = WORDS[area["word"]]
    assert chosen(browser) == name
    assert browser.ask("document.querySelector('#hover').textContent").startswith(f"{name} · word ")
    first = next(each for each in labels(browser) if each["word"] == area["word"])
    mouse(browser, "mousePressed", 300, 300, button="left", clickCount=1)
    mouse(browser, "mouseMoved", 340, 330, button="left", buttons=1)
    mouse(browser, "mouseReleased", 340, 330, button="left", clickCount=1)
    second = next(each for each in labels(browser) if each["word"] == area["word"])
    assert abs(second["left"] - first["left"]) == pytest.approx(40, abs=80) and chosen(browser) == name
    browser.ask("document.querySelector('#whole').click()")
    browser.settle()
    assert "10,000 of 10,000 words are visible" in browser.ask(sight)
    quiet(browser)


def test_keys_walk_zoom_and_let_go(browser: Browser, page: Path) -> None:
    opened(browser, page)
    browser.ask("document.querySelector('#canvas').focus()")
    assert browser.ask("parseFloat(getComputedStyle(document.activeElement).outlineWidth)") >= 2
    seen = []
    for _ in range(4):
        browser.key("ArrowRight")
        seen.append(chosen(browser))
    places = [POINTS[WORDS.index(word), 0] for word in seen]
    assert len(set(seen)) == 4 and places == sorted(places)
    browser.key("ArrowLeft")
    assert POINTS[WORDS.index(chosen(browser)), 0] < places[-1]
    for _ in range(5):
        browser.key("+")
    sight = "document.querySelector('#note').textContent"
    assert "10,000 of 10,000" not in browser.ask(sight)
    browser.key("0")
    browser.settle()
    assert "10,000 of 10,000" in browser.ask(sight)
    browser.key("Escape")
    assert chosen(browser) == "No word selected" and neighbours(browser) == []
    reached = set()
    browser.ask("document.querySelector('#search').focus()")
    for _ in range(6):
        browser.key("Tab")
        reached.add(browser.ask("document.activeElement.id"))
    assert {"closer", "farther", "whole", "canvas"} <= reached


@pytest.mark.parametrize("width", [320, 768, 1400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_its_window(browser: Browser, page: Path, width: int, dark: bool) -> None:
    opened(browser, page, width, dark=dark)
    typed(browser, "motel")
    browser.key("Enter")
    browser.settle()
    assert browser.ask("document.documentElement.scrollWidth") <= width
    ink, ground = (browser.ask(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
    assert contrast(ink, ground) >= 7 and (luminance(ground) < 0.1) == dark
    card = browser.ask("getComputedStyle(document.querySelector('.card')).backgroundColor")
    for name, least in (("--near", 4.5), ("--accent", 4.5), ("--dot", 3)):
        colour = browser.ask(f"getComputedStyle(document.documentElement).getPropertyValue('{name}').trim()")
        rgb = ", ".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
        assert contrast(f"rgb({rgb})", card) >= least, name
    quiet(browser)


def test_thirty_payloads_are_harmless(browser: Browser, tmp_path: Path) -> None:
    vectors = DRAWN.normal(size=(30, 8)).astype(np.float32)
    facts = {payload: payload for payload in PAYLOADS}
    path = tmp_path / "hostile.html"
    hostile = Projection(PAYLOADS, DRAWN.normal(size=(30, 2)), vectors, PAYLOADS[0], facts)
    path.write_text(build_projection(hostile), encoding="utf-8")
    opened(browser, path)
    typed(browser, "pwned")
    browser.key("Enter")
    browser.settle()
    assert browser.ask("typeof pwned") == "undefined"
    assert browser.ask(f"document.querySelectorAll({ELEMENTS!r}).length") == 0
    assert browser.ask("location.href") == path.as_uri()
    quiet(browser)


def test_a_map_of_another_size_is_never_seen_empty(browser: Browser, page: Path) -> None:
    """An observer that comes after the page's own looks at the canvas before anybody else does."""
    opened(browser, page)
    seen = browser.ask(
        """new Promise((done) => {
          const [map, canvas] = [document.querySelector('#map'), document.querySelector('#canvas')];
          let first = true;
          new ResizeObserver(() => {
            if (first) { first = false; map.style.height = '333px'; return; }
            const drawn = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            done([canvas.clientHeight, drawn.filter((value) => value > 0).length]);
          }).observe(map);
        })"""
    )
    assert seen[0] == pytest.approx(333, abs=3) and seen[1] > 1000
