"""Maps, and pictures for papers: what is chosen, the entropy, SVG as XML, PNG pixel by pixel, unknown signs."""

from __future__ import annotations

import math
import struct
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pytest
from rich.cells import cell_len

from attnkit.plotting.attention_maps import (
    AttentionExample,
    AttentionMap,
    MapSlice,
    as_dictionary,
    entropies,
    pictures,
    shown,
)
from attnkit.plotting.figure import Figure, Text, colour, heat_maps, to_svg
from attnkit.plotting.raster import MOST_PIXELS, to_png, unknown_signs
from attnkit.plotting.strokes import glyph, known
from attnkit.plotting.terminal import sentence_maps

SVG = "{http://www.w3.org/2000/svg}"
QUERIES, KEYS = ["Le", "chat", "</s>"], ["The", "cat", "sat", "</s>"]
WEIGHTS = np.random.default_rng(5).dirichlet(np.ones(4), (2, 3, 3)).astype(np.float32)
MAP = AttentionMap("cross", QUERIES, KEYS, WEIGHTS, ["dot", "additive", "deep"])


def test_entropy_is_the_mean_over_rows() -> None:
    weights = np.array([[0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.25] * 4, [0, 0, 0, 0], [2, 2, 0, 0]])
    rows = [1.0, 0.0, 2.0, 1.0]  # by hand; the row of zeros is left out, the last one rescaled
    assert entropies(weights) == pytest.approx(sum(rows) / 4)
    expected = [[sum(-p * math.log2(p) for p in row if p) for row in head] for head in WEIGHTS[1].tolist()]
    assert entropies(WEIGHTS)[1] == pytest.approx([sum(rows) / 3 for rows in expected], abs=1e-6)
    assert entropies(np.zeros((2, 3))) == 0 and entropies(np.zeros((2, 0, 3))).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("layer", "head", "expected"),
    [
        (2, 3, WEIGHTS[1, 2]),
        (1, "mean", WEIGHTS[0].mean(0)),
        (2, "max", WEIGHTS[1].max(0)),
        ("mean", 1, WEIGHTS[:, 0].mean(0)),
        ("max", "max", WEIGHTS.max((0, 1))),
        ("mean", "max", WEIGHTS.max(1).mean(0)),
    ],
)
def test_a_choice_of_layer_and_head(layer: object, head: object, expected: np.ndarray) -> None:
    (found,) = pictures(MAP, layer, head)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.weights, expected, atol=1e-7)
    assert found.entropy == pytest.approx(float(entropies(expected)), abs=1e-6)


def test_all_is_every_layer_and_head_in_order() -> None:
    found = pictures(MAP, "all", "all")
    assert [picture.title.split(", ")[1:] for picture in found] == [
        [f"layer {layer}", f"head {head} ({name})"]
        for layer in (1, 2)
        for head, name in enumerate(("dot", "additive", "deep"), 1)
    ]
    for number, picture in enumerate(found):
        np.testing.assert_allclose(picture.weights, WEIGHTS[number // 3, number % 3], atol=1e-7)


@pytest.mark.parametrize(("layer", "head"), [(3, 1), (0, 1), (1, 4), (1, -1)])
def test_a_layer_or_head_that_is_not_there(layer: int, head: int) -> None:
    with pytest.raises(ValueError, match=r"has (layers 1 to 2|heads 1 to 3)"):
        pictures(MAP, layer, head)


def test_weights_must_fit_the_tokens() -> None:
    with pytest.raises(ValueError, match="2 queries and 4 keys"):
        AttentionMap("cross", ["a", "b"], KEYS, WEIGHTS)


def test_plain_data_holds_every_number() -> None:
    found = as_dictionary(AttentionExample("The cat sat", "Le chat", [MAP], facts={"score": -1.0}))
    (map,) = found["attention"]
    assert np.array_equal(np.array(map["weights"], np.float32), WEIGHTS)
    assert (map["kind"], map["layers"], map["heads"], map["queries"], map["keys"]) == ("cross", 2, 3, QUERIES, KEYS)
    np.testing.assert_allclose(map["entropy_bits"], entropies(WEIGHTS), atol=1e-6)
    assert (found["source"], found["target"], found["score"], found["tree"]) == ("The cat sat", "Le chat", -1.0, [])


def test_a_kind_that_nobody_knows_has_its_own_name() -> None:
    assert AttentionMap("word", ["a"], ["b"], np.ones((1, 1, 1, 1))).title == "Word attention"
    assert AttentionMap("odd", ["a"], ["b"], np.ones((1, 1, 1, 1)), note="drawn").title == "odd attention (drawn)"


@pytest.mark.parametrize("token", ["<b>&\"'", "</svg><script>x</script>", "\0\ud800\ufffe", "猫 ▁", ""])
def test_svg_is_xml_in_which_tokens_are_text(token: str) -> None:
    map = AttentionMap("cross", [token, "b"], ["c", token], np.array([[[[0.2, 0.8], [1, 0]]]]))
    root = ET.fromstring(to_svg(heat_maps(pictures(map, "all", "all"), token)))
    assert {element.tag for element in root.iter()} == {SVG + name for name in ("svg", "rect", "text", "title")}
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts.count(shown(token)) == 2 + bool(token), "a row, a column, and the heading where there is one"
    titles = [element.text or "" for element in root.iter(f"{SVG}title")]
    assert [title.rsplit(": ")[1] for title in titles] == ["0.200", "0.800", "1.000"], "a cell of nothing is not drawn"


def decoded(png: bytes) -> np.ndarray:
    """Return the pixels of a PNG without filters, its check sums being right."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        name, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(name + body)
        chunks[name] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"pHYs", b"IDAT", b"IEND"]
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert kind == [8, 2, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_every_cell_of_the_png_has_the_colour_of_its_weight() -> None:
    picture = MapSlice("t", "a", ["é", "b"], ["c", "d"], np.array([[0.5, 0.0], [0.1, 1.0]]), 1.0)
    figure = heat_maps([picture])
    pixels = decoded(to_png(figure, 2.0))
    assert pixels.shape == (round(2 * figure.height), round(2 * figure.width), 3)
    cells = [box for box in figure.boxes if box.title or box.width > 50]
    assert len(cells) == 4, "the ground and three weights"
    for box in cells[1:]:
        middle = pixels[round(2 * box.y + box.height), round(2 * box.x + box.width)]
        assert "#" + "".join(f"{part:02x}" for part in middle) == box.fill == colour(float(box.title.split(": ")[1]))
    assert (pixels[:8] == 255).all(), "a margin without ink"


def test_letters_are_drawn_where_they_belong() -> None:
    """A line of ``l`` is one upright stroke of its height, and nothing is left of where a text begins."""
    pixels = decoded(to_png(Figure(60, 40, [], [Text(20, 30, "l", 14.0)]), 4.0)).min(-1)
    rows, columns = np.nonzero(pixels < 128)
    assert columns.min() >= 80 and np.ptp(columns) < 8
    assert rows.max() == pytest.approx(120, abs=4) and np.ptp(rows) == pytest.approx(10 * 4, abs=6)
    turned = decoded(to_png(Figure(60, 40, [], [Text(20, 30, "l", 14.0, turned=True)]), 4.0)).min(-1)
    rows, columns = np.nonzero(turned < 128)
    assert rows.max() <= 120 and np.ptp(rows) < 8 and np.ptp(columns) == pytest.approx(10 * 4, abs=6)
    ends = decoded(to_png(Figure(60, 40, [], [Text(40, 30, "lll", 14.0, "end")]), 4.0)).min(-1)
    assert np.nonzero(ends < 128)[1].max() <= 160


def test_signs_without_a_glyph_are_named_by_their_number() -> None:
    assert known("Où est l’été ? Größe, Ångström, Łódź, žluťoučký, ñandú… ▁</s>")
    assert not known("猫") and not known("Ж")
    assert unknown_signs(Figure(9, 9, [], [Text(0, 0, "a猫Ж猫")])) == ["Ж", "猫"]
    strokes, width = glyph("猫")
    assert len(strokes) == 1 + sum(len(glyph(digit)[0]) for digit in "732B") and width > glyph("m")[1] / 2
    accents = {char: len(glyph(char)[0]) for char in "eéêëç"}
    assert accents == {"e": 2, "é": 3, "ê": 3, "ë": 4, "ç": 2}
    assert len(glyph("i")[0]) == 2 and len(glyph("î")[0]) == 2, "the accent stands in the place of the dot"


def test_a_picture_beyond_all_bounds_is_refused() -> None:
    side = math.isqrt(MOST_PIXELS) + 1
    with pytest.raises(ValueError, match="is too large"):
        to_png(Figure(side, side, [], []), 1.0)


def test_layers_that_are_cut_from_more_keep_their_numbers() -> None:
    cut = AttentionMap("cross", QUERIES, KEYS, WEIGHTS[:2], first_layer=5)
    assert [picture.title.split(", ")[1] for picture in pictures(cut, "all", 1)] == ["layer 5", "layer 6"]
    np.testing.assert_array_equal(pictures(cut, 6, 1)[0].weights, WEIGHTS[1, 0])
    for layer in (1, 4, 7):
        with pytest.raises(ValueError, match="layers 5 to 6"):
            pictures(cut, layer, 1)
    assert as_dictionary(AttentionExample("a", "b", [cut]))["attention"][0]["first_layer"] == 5


def test_a_sentence_in_the_terminal() -> None:
    sentence = AttentionExample("The \x1b[31mcat\nsat", "Le chat", [MAP], facts={"log_prob": -0.5})
    drawn = sentence_maps(sentence, pictures(MAP, 2, "all"), colour=False)
    lines = drawn.splitlines()
    assert lines[0] == "The <U+001B>[31mcat<U+000A>sat"
    assert lines[1] == "  -> Le chat  (log prob -0.5)"
    assert lines[3] == "rows: the word being written, columns: source words; weights in percent"
    assert max(map(cell_len, lines)) <= 80 and "\x1b" not in drawn
    assert [line.count("head") for line in lines if "head" in line] == [1, 1, 1], "too wide to stand side by side"
    wide = sentence_maps(sentence, pictures(MAP, 2, "all"), colour=True, width=200).splitlines()
    assert [line.count("head") for line in wide if "head" in line] == [3]
    narrow = AttentionMap("odd", ["猫"], ["犬"], np.ones((1, 2, 1, 1)))
    two = sentence_maps(AttentionExample("猫", "", [narrow]), pictures(narrow, 1, "all"), colour=False).splitlines()
    assert two[-1].split() == ["猫", "100", "猫", "100"], "two maps on one line"


@pytest.mark.parametrize("width", [20, 21, 80])
def test_long_texts_are_folded(width: int) -> None:
    texts = ["aa bb cc dd " * 9, "猫" * 50 + " x " + "y" * 90, "", "short"]
    for text in texts:
        drawn = sentence_maps(AttentionExample(text, text, []), [], colour=False, width=width).split("\n")
        assert max(map(cell_len, drawn)) <= max(width, len("; weights in percent"))
        said = "".join(drawn).split("; weights")[0].replace("->", "").replace(" ", "")
        assert said == shown(text).replace(" ", "") * 2 or not text
    assert drawn[:2] == ["short", "  -> short"]
