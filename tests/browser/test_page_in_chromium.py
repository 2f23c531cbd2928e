"""The page at work: exact, reachable by keyboard, and as wide as its window."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chromium import Browser
from looked import CROSS, DECODER, ENCODER, SENTENCE, SRC, TGT, choose, quiet, tour, tree, weights

from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, BeamNode, entropies, regroup
from attnkit.plotting.html.attention import build_page
from attnkit.protocols import TokenRuns


@pytest.mark.parametrize(("kind", "map"), [(0, CROSS), (1, ENCODER), (2, DECODER)], ids=["cross", "encoder", "decoder"])
def test_a_hovered_value_is_the_tensors(browser: Browser, page: Path, kind: int, map: AttentionMap) -> None:
    browser.open(page)
    browser.ask(f"document.getElementsByName('kind')[{kind}].click()")
    browser.settle()
    n_layers, n_heads, n_rows, n_columns = map.weights.shape
    for layer, head, row, column in (
        (0, 0, 0, 0),
        (n_layers - 1, 2, 5, 3),
        (1, n_heads - 1, n_rows - 1, n_columns - 1),
    ):
        choose(browser, layer, str(head))
        assert hovered(browser, row, column).split()[0] == f"{map.weights[layer, head, row, column]:.4f}"
        assert f"“{map.queries[row]}”" in hovered(browser, row, column) and f"“{map.keys[column]}”" in hovered(
            browser, row, column
        )
    choose(browser, 0, "mean")
    assert hovered(browser, 3, 2).split()[0] == f"{map.weights[0].astype(np.float64).mean(0)[3, 2]:.4f}"
    choose(browser, 0, "max")
    assert hovered(browser, 3, 1).split()[0] == f"{map.weights[0].max(0)[3, 1]:.4f}"
    browser.ask("document.querySelector('#table').open = true")
    browser.settle()
    cells = browser.ask(
        "[...document.querySelectorAll('#cells tbody tr')]"
        ".map((row) => [...row.cells].slice(1).map((cell) => cell.textContent))"
    )
    assert cells == [[f"{weight:.4f}" for weight in row] for row in map.weights[0].max(0)]


def hovered(browser: Browser, row: int, column: int) -> str:
    """Move the pointer over a cell and return what the page says of it."""
    browser.ask("document.querySelector('#plot').scrollIntoView({block: 'center'})")
    place = browser.ask(
        "(() => { const canvas = document.querySelector('#plot canvas'); const box = canvas.getBoundingClientRect();"
        " return { x: box.left, y: box.top, ...canvas.dataset }; })()"
    )
    cell = float(place["cell"])
    x = place["x"] + float(place["left"]) + (column + 0.5) * cell
    y = place["y"] + float(place["upper"]) + (row + 0.5) * cell
    browser.point(x, y)
    return str(browser.ask("document.querySelector('#readout').textContent"))


OVERVIEW = "[...document.querySelectorAll('.thumb')].map((each) => each.getAttribute('aria-label').split(', e')[0])"


def test_a_pointer_before_the_weights_are_there_mixes_nothing(browser: Browser, page: Path) -> None:
    """What was drawn of the map before is gone with it, and asking for the map does not stop the overview."""
    move = (
        "{ const canvas = document.querySelector('#plot canvas'); const box = canvas.getBoundingClientRect();"
        "const at = { clientX: box.left + Number(canvas.dataset.left) + 5, bubbles: true,"
        " clientY: box.top + Number(canvas.dataset.upper) + %d * Number(canvas.dataset.cell) + 5 };"
        " %s; canvas.dispatchEvent(new PointerEvent('pointermove', at)); window.dispatchEvent(new Event('resize')) }"
    )
    browser.open(page)
    browser.ask(move % (1, "document.getElementsByName('kind')[1].click()"))
    browser.settle()
    title = browser.ask("document.querySelector('#plot-title').textContent")
    assert title.startswith("Encoder self-attention")
    heads = ("head 1", "head 2", "head 3", "head 4", "mean", "largest")
    assert browser.ask(OVERVIEW) == [f"Layer {layer}, {head}" for layer in (1, 2) for head in heads]
    browser.open(page)
    choose_sentence = (
        "{ const s = document.querySelector('#sentence'); s.value = '%d'; s.dispatchEvent(new Event('change')) }"
    )
    browser.ask(choose_sentence % 1)
    browser.settle()
    browser.ask("document.querySelector('#plot').scrollIntoView({block: 'center'})")
    browser.ask(move % (100, choose_sentence % 0))
    browser.settle()
    assert "NaN" not in browser.ask("document.querySelector('#readout').textContent")
    assert len(browser.ask(OVERVIEW)) == 18
    quiet(browser)


def test_headings_of_the_lines_are_whole(browser: Browser, page: Path) -> None:
    """Beside words of one letter, too."""
    browser.open(page)
    browser.ask("const s = document.querySelector('#sentence'); s.value = '1'; s.dispatchEvent(new Event('change'))")
    browser.ask("document.querySelector('input[name=view][value=lines]').click()")
    browser.settle()
    boxes = browser.ask(
        "[...document.querySelectorAll('#plot text')].map((each) => [each.textContent, each.getBBox().x,"
        " each.getBBox().x + each.getBBox().width, Number(document.querySelector('#plot svg').getAttribute('width'))])"
    )
    assert {"keys", "queries"} <= {box[0] for box in boxes}
    assert [box for box in boxes if box[1] < 0 or box[2] > box[3]] == []


def test_layers_and_texts_have_the_names_they_are_given(browser: Browser, tmp_path: Path) -> None:
    cut = replace(CROSS, weights=CROSS.weights[1:], first_layer=5)
    (tmp_path / "page.html").write_text(
        build_page([replace(SENTENCE, maps=[cut], sides=("Document", "Label"))], {}), encoding="utf-8"
    )
    browser.open(tmp_path / "page.html")
    assert browser.ask("document.querySelector('#plot-title').textContent").split(", ")[1] == "layer 6"
    assert {label.split(",")[0] for label in browser.ask(OVERVIEW)} == {"Layer 5", "Layer 6"}
    said = "[...document.querySelectorAll('%s')].map((each) => each.textContent)"
    assert browser.ask(said % "#layers span") == ["5", "6"]
    assert browser.ask(said % ".heads th[scope=row]") == ["layer 5", "layer 6"]
    assert browser.ask(said % ".side") == ["Document", "Label"]
    choose(browser, 0, "0")
    assert browser.ask("document.querySelector('#plot-title').textContent").split(", ")[1] == "layer 5"


def focus_on(browser: Browser, selector: str) -> None:
    """Press Tab until the focus is on what a selector names."""
    browser.ask("document.activeElement.blur()")
    for _ in range(60):
        browser.key("Tab")
        if browser.ask(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"Tab never reaches {selector}")


def test_every_layer_and_head_is_reached_by_keys(browser: Browser, page: Path) -> None:
    browser.open(page)
    seen = set()
    focus_on(browser, "input[name=layer]")
    for _ in range(3):
        browser.key("ArrowRight")
        seen.add(browser.ask("document.querySelector('#plot-title').textContent"))
    assert {re.search(r"layer (\d)", title)[1] for title in seen} == set("123")
    focus_on(browser, "input[name=head]")
    heads = set()
    for _ in range(6):
        browser.key("ArrowRight")
        heads.add(browser.ask("document.querySelector('#plot-title').textContent").split(", ")[2])
        assert_focus_is_seen(browser)
    names = ["scaled_dot x softmax", "additive x softmax"] * 2
    assert heads == {
        "mean of all heads",
        "largest of all heads",
        *(f"head {i + 1} ({name})" for i, name in enumerate(names)),
    }
    focus_on(browser, "input[name=kind]")
    browser.key("ArrowRight")
    assert browser.ask("document.querySelector('#plot-title').textContent").startswith("Encoder self-attention")
    browser.key("ArrowRight")
    assert browser.ask("document.querySelector('#plot-title').textContent").startswith("Decoder self-attention")


def test_the_overview_is_walked_by_arrow_keys(browser: Browser, page: Path) -> None:
    browser.open(page)
    focus_on(browser, ".thumb")
    for _ in range(3):
        browser.key("ArrowUp")
    for _ in range(6):
        browser.key("ArrowLeft")
    names = []
    for row in range(3):
        for column in range(6):
            names.append(browser.ask("document.activeElement.getAttribute('aria-label')"))
            assert_focus_is_seen(browser)
            if column < 5 or row < 2:
                browser.key("ArrowRight")
    expected = [
        f"Layer {i}, {head}" for i in (1, 2, 3) for head in (*(f"head {j}" for j in (1, 2, 3, 4)), "mean", "largest")
    ]
    assert [name.rsplit(", entropy", 1)[0] for name in names] == expected
    browser.key(" ")
    assert (
        browser.ask("document.querySelector('#plot-title').textContent")
        == "Cross-attention, layer 3, largest of all heads"
    )
    assert browser.ask("document.querySelectorAll('.thumb[aria-pressed=true]').length") == 1


def assert_focus_is_seen(browser: Browser) -> None:
    outline = browser.ask(
        "(() => { const on = document.activeElement;"
        " const look = getComputedStyle(on.matches('.option input') ? on.nextElementSibling : on);"
        " return look.outlineStyle === 'none' ? 0 : parseFloat(look.outlineWidth); })()"
    )
    assert outline >= 2


def test_the_map_is_read_by_arrow_keys(browser: Browser, page: Path) -> None:
    browser.open(page)
    choose(browser, 1, "2")
    focus_on(browser, "#plot")
    for name, row, column in (
        ("ArrowDown", 0, 0),
        ("ArrowDown", 1, 0),
        ("End", 1, 7),
        ("ArrowLeft", 1, 6),
        ("ArrowUp", 0, 6),
    ):
        browser.key(name)
        said = browser.ask("document.querySelector('#readout').textContent")
        assert said.startswith(f"{CROSS.weights[1, 2, row, column]:.4f} of “{TGT[row]}”")
    assert browser.ask("document.querySelector('#readout').getAttribute('aria-live')") == "polite"
    assert browser.ask("[...document.querySelectorAll('.token.on')].map((each) => each.textContent)") == [
        SRC[6],
        TGT[0],
    ]


def test_lines_are_as_many_as_weights_worth_one(browser: Browser, page: Path) -> None:
    browser.open(page)
    choose(browser, 0, "1")
    browser.ask("document.querySelector('input[name=view][value=lines]').click()")
    browser.settle()
    rounded = np.rint(CROSS.weights[0, 1] * 1e4)
    expected = int((rounded >= 0.05 * rounded.max()).sum())
    assert browser.ask("document.querySelectorAll('#plot path').length") == expected
    assert "are omitted" in browser.ask("document.querySelector('#axes').textContent")


def test_the_tree_shows_what_was_kept_and_dropped(browser: Browser, page: Path) -> None:
    browser.open(page)
    branches = SENTENCE.tree
    assert browser.ask("document.querySelectorAll('#tree text:not(.number)').length") == len(branches)
    browser.ask("document.querySelector('#pruned').click()")
    kept = [branch for branch in branches if branch.fate != "pruned"]
    assert browser.ask("document.querySelectorAll('#tree text:not(.number)').length") == len(kept)
    best = browser.ask("[...document.querySelectorAll('#tree text.best')].map((each) => each.firstChild.textContent)")
    assert best == TGT
    rows = browser.ask(
        "[...document.querySelectorAll('#finished tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert rows[0] == ["1", "-0.400", "-2.700", " ".join(TGT), "finished"]
    assert len(rows) == sum(branch.fate == "ended" for branch in branches)


@pytest.mark.parametrize("width", [320, 768, 1400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_its_window(browser: Browser, page: Path, tmp_path: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    tour(browser)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    ink, ground = (browser.ask(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
    assert contrast(ink, ground) >= 7
    quiet_ink = browser.ask("getComputedStyle(document.querySelector('p.quiet')).color")
    assert contrast(quiet_ink, browser.ask("getComputedStyle(document.querySelector('.card')).backgroundColor")) >= 4.5
    assert (luminance(ground) < 0.1) == dark
    quiet(browser)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the ratio of WCAG 2."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_tree_labels_leave_their_numbers_room(browser: Browser, tmp_path: Path) -> None:
    tokens = ["WWWWWWWW", "日本語日本語日本語", "مرحبا بالعالم يا صديقي", "iiiiiiii", "</s>"]
    nodes = [BeamNode(i, i - 1 if i else None, text, -123.45, "open", None, True) for i, text in enumerate(tokens)]
    (tmp_path / "page.html").write_text(build_page([replace(SENTENCE, tree=nodes)], {}), encoding="utf-8")
    browser.open(tmp_path / "page.html")
    boxes = browser.ask(
        "[...document.querySelectorAll('#tree text')].map((each) => {"
        " const box = each.getBBox(); return [each.classList.contains('number'), box.x, box.x + box.width]; })"
    )
    words, numbers = ([box[1:] for box in boxes if box[0] is kind] for kind in (False, True))
    assert len(words) == len(numbers) == 5
    for i, ((begin, end), (number, _)) in enumerate(zip(words, numbers, strict=True)):
        assert 14 + 136 * i <= begin and end < number


RUNS = TokenRuns([("é", 2), ("▁b", 1), ("</s>", 1)], [("é", 2), ("b", 1), ("</s>", 1)], [False, False, False, True])


def test_words_have_the_weights_that_python_computes(browser: Browser, tmp_path: Path) -> None:
    tokens = ["<0xC3>", "<0xA9>", "▁b", "</s>"]
    map = AttentionMap("self", tokens, tokens, weights((2, 2, 4, 4), 7), query_runs=RUNS, key_runs=RUNS)
    (tmp_path / "page.html").write_text(build_page([replace(SENTENCE, maps=[map])], {}, "word"), encoding="utf-8")
    browser.open(tmp_path / "page.html")
    browser.ask("document.querySelector('#table').open = true")
    for unit, special in (("word", True), ("word", False), ("character", True), ("token", False)):
        browser.ask(f"document.querySelector('input[name=unit][value={unit}]').click()")
        browser.ask(f"if (document.querySelector('#special').checked !== {str(special).lower()}) special.click()")
        choose(browser, 1, "0")
        expected = regroup(map, unit, special)
        rows = browser.ask(
            "[...document.querySelectorAll('#cells tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        assert rows[0][1:] == expected.keys and [row[0] for row in rows[1:]] == expected.queries
        shown = np.array([row[1:] for row in rows[1:]], float)
        np.testing.assert_allclose(shown, expected.weights[1, 0], atol=2.1e-4)
        bits = float(entropies(expected.weights[1, 0]))
        said = browser.ask("document.querySelector('#axes').textContent")
        assert abs(float(re.search(r"entropy ([\d.]+)", said)[1]) - bits) < 0.02
    quiet(browser)


def test_right_to_left_text_has_its_direction(browser: Browser, tmp_path: Path) -> None:
    hebrew, arabic = ["▁שלום", "▁עולם", "."], ["▁مرحبا", "!"]
    map = AttentionMap("cross", arabic, hebrew, weights((1, 1, 2, 3), 8))
    sentence = AttentionExample("שלום עולם.", "مرحبا!", [map], tree(arabic))
    (tmp_path / "page.html").write_text(build_page([sentence], {}), encoding="utf-8")
    browser.open(tmp_path / "page.html")
    browser.ask("document.querySelector('#table').open = true")
    browser.settle()
    assert browser.ask("['source', 'target'].map((name) => document.getElementById(name).dir)") == ["rtl", "rtl"]
    left = browser.ask("[...document.querySelectorAll('#source bdi')].map((each) => each.getBoundingClientRect().left)")
    assert left == sorted(left, reverse=True), "the first word is on the right"
    isolated = (
        "[...document.querySelectorAll('#cells th, #nodes td, #finished td')].every((e) => e.querySelector('bdi'))"
    )
    assert browser.ask(isolated)
    browser.ask("document.querySelector('input[name=view][value=lines]').click()")
    browser.settle()
    boxes = browser.ask(
        "[...document.querySelectorAll('#plot text')].slice(2).map((each) => [each.getBBox().x,"
        " each.getBBox().x + each.getBBox().width, each.getAttribute('direction')])"
    )
    assert [box[2] for box in boxes] == ["rtl", "rtl", "ltr", "rtl", "ltr"]
    assert max(abs(box[1] - boxes[0][1]) for box in boxes[:3]) < 2, "keys end at the lines"
    assert max(abs(box[0] - boxes[3][0]) for box in boxes[3:]) < 2, "queries begin there"
    quiet(browser)
