"""Maps, and pictures for papers: what is chosen, the entropy, SVG as XML, PNG pixel by pixel, every script."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from io import BytesIO
from typing import get_args

import numpy as np
import pytest
from rich.cells import cell_len

from attnkit.errors import DataError, UsageError
from attnkit.plotting import figures
from attnkit.plotting.attention_maps import (
    AttentionExample,
    AttentionMap,
    MapSlice,
    display_text,
    entropies,
    select_slices,
    to_dict,
)
from attnkit.plotting.figures import MAX_PIXELS, PictureFormat, attention_picture, missing_glyphs
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
    (found,) = select_slices(MAP, layer, head)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.weights, expected, atol=1e-7)
    assert found.entropy == pytest.approx(float(entropies(expected)), abs=1e-6)


def test_all_is_every_layer_and_head_in_order() -> None:
    found = select_slices(MAP, "all", "all")
    assert [picture.title.split(", ")[1:] for picture in found] == [
        [f"layer {layer}", f"head {head} ({name})"]
        for layer in (1, 2)
        for head, name in enumerate(("dot", "additive", "deep"), 1)
    ]
    for number, picture in enumerate(found):
        np.testing.assert_allclose(picture.weights, WEIGHTS[number // 3, number % 3], atol=1e-7)


@pytest.mark.parametrize(("layer", "head"), [(3, 1), (0, 1), (1, 4), (1, -1)])
def test_a_layer_or_head_that_is_not_there(layer: int, head: int) -> None:
    with pytest.raises(UsageError, match=r"^Cross-attention has no (layer|head) ") as found:
        select_slices(MAP, layer, head)
    assert found.value.help in ("choose 1 to 2, mean, max or all", "choose 1 to 3, mean, max or all")


def test_weights_must_fit_the_tokens() -> None:
    with pytest.raises(ValueError, match="2 queries and 4 keys"):
        AttentionMap("cross", ["a", "b"], KEYS, WEIGHTS)


def test_plain_data_holds_every_number() -> None:
    found = to_dict(AttentionExample("The cat sat", "Le chat", [MAP], facts={"score": -1.0}))
    (map,) = found["attention"]
    assert np.array_equal(np.array(map["weights"], np.float32), WEIGHTS)
    assert (map["kind"], map["layers"], map["heads"], map["queries"], map["keys"]) == ("cross", 2, 3, QUERIES, KEYS)
    np.testing.assert_allclose(map["entropy_bits"], entropies(WEIGHTS), atol=1e-6)
    assert (found["source"], found["target"], found["score"], found["tree"]) == ("The cat sat", "Le chat", -1.0, [])


def test_a_kind_that_nobody_knows_has_its_own_name() -> None:
    assert AttentionMap("word", ["a"], ["b"], np.ones((1, 1, 1, 1))).title == "Word attention"
    assert AttentionMap("odd", ["a"], ["b"], np.ones((1, 1, 1, 1)), note="drawn").title == "odd attention (drawn)"


@pytest.mark.parametrize("token", ["<b>&\"'", "</svg><script>x</script>", "\0\ud800\ufffe", "猫 ▁", "$x_1$", ""])
def test_svg_is_xml_in_which_tokens_are_text(token: str) -> None:
    map = AttentionMap("cross", [token, "b"], ["c", token], np.array([[[[0.2, 0.8], [1, 0]]]]))
    root = ET.fromstring(attention_picture(select_slices(map, "all", "all"), "svg", token))
    assert not {element.tag for element in root.iter()} & {SVG + name for name in ("script", "foreignObject", "a")}
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts.count(display_text(token)) == 2 + bool(token), "a row, a column, and the heading where there is one"


def pixels_of(png: bytes) -> np.ndarray:
    """Return the pixels (height, width, 3) of a PNG, 0 to 255."""
    from matplotlib.image import imread

    return np.rint(imread(BytesIO(png))[..., :3] * 255).astype(int)


def test_every_cell_of_the_png_has_the_colour_of_its_weight() -> None:
    weights = np.array([[0.5, 0.0], [0.1, 1.0]])
    slice = MapSlice("t", "a", ["é", "b"], ["c", "d"], weights, 1.0)
    pixels = pixels_of(attention_picture([slice], "png"))
    assert (pixels[:8] == 255).all(), "a margin without ink"
    ramp = [(247, 250, 252), (198, 221, 238), (112, 172, 212), (36, 113, 178), (8, 48, 107)]
    # A cell is 26 layout units wide, 2 pixels each: most pixels of its colour lie in one square.
    for weight in weights.ravel().tolist():
        place = weight * 4
        low = min(int(place), 3)
        expected = [a + (b - a) * (place - low) for a, b in zip(ramp[low], ramp[low + 1], strict=True)]
        near = np.abs(pixels - expected).max(-1) <= 3
        rows, columns = np.nonzero(near)
        inside = near[rows.min() :, columns.min() :][:52, :52]
        assert np.count_nonzero(near) >= 0.9 * 52 * 52, weight
        assert inside.mean() > 0.9 or weight == 0.0, weight


@pytest.mark.parametrize("format", ["svg", "png", "pdf"])
def test_equal_maps_give_equal_bytes(format: PictureFormat) -> None:
    first, second = (attention_picture(select_slices(MAP, 1, "all"), format, "The cat") for _ in range(2))
    assert first == second
    assert first[:8] == {"svg": b"<?xml ve", "png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-1.4"}[format]


def test_every_script_is_legible() -> None:
    """Cyrillic, Greek, Arabic and Chinese letters have glyphs; each is drawn with ink of its own."""
    words = ["кот", "ελ", "قط", "中文", "žluťoučký", "▁</s>"]
    assert missing_glyphs(words) == []
    drawn = []
    for word in words:
        png = attention_picture([MapSlice("", "", [word], ["x"], np.zeros((1, 1)), 0.0)], "png")
        drawn.append(png)
    assert len(set(drawn)) == len(words)
    assert missing_glyphs(["a\U0001f9ff\uf8ff"]) != []


def test_dollar_signs_are_no_formulas() -> None:
    map = AttentionMap("cross", ["$\\frac$", "b"], ["c", "$"], np.array([[[[0.2, 0.8], [1, 0]]]]))
    for format in get_args(PictureFormat):
        assert attention_picture(select_slices(map, "all", "all"), format, "$ and $")


def test_a_picture_beyond_all_bounds_is_refused() -> None:
    side = math.isqrt(MAX_PIXELS)
    huge = MapSlice("t", "a", ["q"] * side, ["k"], np.zeros((side, 1)), 0.0)
    with pytest.raises(DataError, match="too large"):
        attention_picture([huge], "png")


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pictures need matplotlib") as found:
        attention_picture(select_slices(MAP, 1, 1), "svg")
    assert found.value.help == 'pip install "attnkit[plot]"'


def test_layers_that_are_cut_from_more_keep_their_numbers() -> None:
    cut = AttentionMap("cross", QUERIES, KEYS, WEIGHTS[:2], first_layer=5)
    assert [picture.title.split(", ")[1] for picture in select_slices(cut, "all", 1)] == ["layer 5", "layer 6"]
    np.testing.assert_array_equal(select_slices(cut, 6, 1)[0].weights, WEIGHTS[1, 0])
    for layer in (1, 4, 7):
        with pytest.raises(UsageError, match=f"no layer {layer}") as found:
            select_slices(cut, layer, 1)
        assert found.value.help == "choose 5 to 6, mean, max or all"
    assert to_dict(AttentionExample("a", "b", [cut]))["attention"][0]["first_layer"] == 5


def test_a_sentence_in_the_terminal() -> None:
    sentence = AttentionExample("The \x1b[31mcat\nsat", "Le chat", [MAP], facts={"log_prob": -0.5})
    drawn = sentence_maps(sentence, select_slices(MAP, 2, "all"), colour=False)
    lines = drawn.splitlines()
    assert lines[0] == "The <U+001B>[31mcat<U+000A>sat"
    assert lines[1] == "  -> Le chat  (log prob -0.5)"
    assert lines[3] == "rows: target tokens, columns: source tokens; weights in percent"
    assert max(map(cell_len, lines)) <= 80 and "\x1b" not in drawn
    assert [line.count("head") for line in lines if "head" in line] == [1, 1, 1], "too wide to stand side by side"
    wide = sentence_maps(sentence, select_slices(MAP, 2, "all"), colour=True, width=200).splitlines()
    assert [line.count("head") for line in wide if "head" in line] == [3]
    narrow = AttentionMap("odd", ["猫"], ["犬"], np.ones((1, 2, 1, 1)))
    two = sentence_maps(
        AttentionExample("猫", "", [narrow]), select_slices(narrow, 1, "all"), colour=False
    ).splitlines()
    assert two[-1].split() == ["猫", "100", "猫", "100"], "two maps on one line"


@pytest.mark.parametrize("width", [20, 21, 80])
def test_long_texts_are_folded(width: int) -> None:
    texts = ["aa bb cc dd " * 9, "猫" * 50 + " x " + "y" * 90, "", "short"]
    for text in texts:
        drawn = sentence_maps(AttentionExample(text, text, []), [], colour=False, width=width).split("\n")
        assert max(map(cell_len, drawn)) <= max(width, len("; weights in percent"))
        said = "".join(drawn).split("; weights")[0].replace("->", "").replace(" ", "")
        assert said == display_text(text).replace(" ", "") * 2 or not text
    assert drawn[:2] == ["short", "  -> short"]
