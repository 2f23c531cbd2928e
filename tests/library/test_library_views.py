"""Results that a notebook shows: what they hold, and that their HTML is whole, harmless and says the same."""

from __future__ import annotations

import doctest
import json
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import attnkit
from attnkit.checkpoints.logs import append_record
from attnkit.errors import DataError, RunError, UsageError
from attnkit.library.attention import TranslationAttention
from attnkit.models.attention.config import ALIGNMENT_NAMES
from attnkit.plotting.html.chart import MAX_DOTS, MAX_LABELS
from attnkit.plotting.html.heat import MAX_CELLS
from attnkit.tasks.word2vec.vectors import Vectors

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&amp;", "\u202eabc", "a\x00b"]
HEBREW = "\u05e9\u05dc\u05d5\u05dd"
DRAWN = np.random.default_rng(5)


class Fragment(HTMLParser):
    """Elements of a fragment in order, with their texts; fails on markup that is not closed or does anything."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # (innermost element that is not bdi, text)
        self.feed(html)
        self.close()
        assert self.open == [], "all elements are closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "style", "link", "iframe", "img", "object", "foreignobject", "a")
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href", "srcdoc")]
        assert not [value for _, value in attrs if value and "url(" in value]
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((next((tag for tag in reversed(self.open) if tag != "bdi"), ""), data))

    def of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def test_attention_of_a_translation_shows_its_weights(trained: Path) -> None:
    translator = attnkit.Translator.load(trained, device="cpu")
    found, plain = translator.translate(["1 2 3", "4"], attention=True, max_length=9)
    attention = found.attention
    assert attention is not None and len(attention) == 1
    rows, columns = attention.target_tokens[0], attention.source_tokens[0]
    assert columns == [*found.source_tokens, "</s>"] and rows[: len(found.tokens)] == found.tokens
    assert np.array(attention[0]).shape == (len(rows), len(columns))
    assert np.allclose(np.sum(attention[0], 1), 1, atol=1e-4)
    assert json.loads(json.dumps(found.to_dict()))["attention"] == attention.weights == list(attention)
    fragment = Fragment(attention._repr_html_())
    assert fragment.of("th") == [*columns, *rows]
    expected = [f"{100 * weight:.0f}" for row in attention[0] for weight in row if weight >= 0.005]
    assert fragment.of("td") == expected
    assert translator.translate(["1"])[0].attention is None and plain.attention is not None


def test_a_blank_line_and_several_sentences_are_shown() -> None:
    assert Fragment(TranslationAttention([], [], [])._repr_html_()).of("td") == []
    two = TranslationAttention([[[1.0]], [[0.5, 0.5]]], [["a"], ["b"]], [["c"], ["d", "e"]])
    assert [text for text in Fragment(two._repr_html_()).of("div") if "Sentence" in text] == [
        "Sentence 1",
        "Sentence 2",
    ]


def test_hostile_and_right_to_left_tokens_are_text() -> None:
    tokens = [*HOSTILE, HEBREW]
    weights = np.eye(len(tokens)).tolist()
    weights[0][0] = float("nan")
    html = TranslationAttention([weights], [tokens], [tokens])._repr_html_()
    fragment = Fragment(html)
    assert fragment.of("td")[0] == "?" and html.count(f"<bdi>{HEBREW}</bdi>") == 2
    assert "\u202e" not in html and "\0" not in html, "shown by their names"
    assert len(fragment.of("th")) == 2 * len(tokens)


def test_maps_that_are_too_large_are_left_out() -> None:
    n = int(MAX_CELLS**0.5) + 1
    small, large = [[1.0]], np.full((n, n), 1 / n).tolist()
    names = [str(i) for i in range(n)]
    html = TranslationAttention([small, large], [["a"], names], [["b"], names])._repr_html_()
    assert "1 of 2 maps are too large" in html and len(html) < 5000
    wide = TranslationAttention([[[1 / 30] * 30]], [["a"]], [names[:30]])._repr_html_()
    assert Fragment(wide).of("td") == [] and wide.count('title="3.3 %"') == 30, "no room for numbers in the cells"


def test_attend_gives_all_maps_and_its_page(trained: Path) -> None:
    found = attnkit.attend(trained, ["1 2 3"], targets=["3 2 1"], device="cpu")
    (example,) = found.examples
    assert example.maps[0].kind == "cross" and example.target == "3 2 1"
    fragment = Fragment(found._repr_html_())
    cross = example.maps[0]
    mean = cross.weights[-1].mean(0)
    assert fragment.of("td") == [f"{100 * weight:.0f}" for weight in mean.reshape(-1).tolist() if weight >= 0.005]
    plain = json.loads(json.dumps(found.to_dict()))
    assert np.allclose(plain["examples"][0]["attention"][0]["weights"], cross.weights)
    assert found.page().startswith("<!DOCTYPE html>") and "Content-Security-Policy" in found.page()
    with pytest.raises(UsageError, match="2 targets for 1 source lines"):
        attnkit.attend(trained, ["1"], targets=["1", "2"])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_comparison_shows_every_function(trained: Path) -> None:
    found = attnkit.compare_alignments(trained, ["1 2 3"], device="cpu")
    (example,) = found.examples
    kinds = [one.kind for one in example.maps]
    assert kinds[0] == "cross" and set(kinds[1:]) <= set(ALIGNMENT_NAMES) and len(kinds) > 8
    html = found._repr_html_()
    assert all(f"{kind} attention" in html for kind in kinds[1:]) and html.count("<table") == len(kinds)
    Fragment(html)
    two = attnkit.compare_alignments(trained, ["1 2"], alignments=["dot", "deep"], distribution="softmax", device="cpu")
    assert [one.kind for one in two.examples[0].maps] == ["cross", "dot", "deep"]
    with pytest.raises(UsageError, match="item 0 is 'dott'"):
        attnkit.compare_alignments(trained, ["1 2"], alignments=["dott"])  # type: ignore[list-item]


def test_curves_are_those_of_the_log(trained: Path, tmp_path: Path) -> None:
    found = attnkit.curves(trained)
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    steps = [one for one in records if one["kind"] == "step"]
    assert (found.steps, found.losses) == ([one["step"] for one in steps], [one["loss"] for one in steps])
    evaluations = [one for one in records if one["kind"] == "evaluation"]
    assert found.scores["bleu"] == [(one["step"], one["bleu"]) for one in evaluations]
    assert "check" not in found.scores and json.loads(json.dumps(found.to_dict()))["steps"] == found.steps
    html = found._repr_html_()
    assert html.count("<svg") == len(found.scores), "losses together, the others alone"
    assert "development loss" in Fragment(html).of("bdi") or "development loss" in html
    with pytest.raises(RunError, match="no records of a training run"):
        attnkit.curves(tmp_path)


def test_curves_of_a_damaged_and_diverged_log(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    for step, loss in ((1, 2.0), (2, float("nan")), (3, 1.0)):
        append_record(log, {"kind": "step", "step": step, "loss": loss, "learning_rate": 0.1})
    with log.open("a") as stream:
        stream.write('{"kind":"step","step":4,"lo')
    found = attnkit.curves(tmp_path)
    assert found.steps == [1, 2, 3] and np.isnan(found.losses[1])
    html = found._repr_html_()
    assert html.count("<polyline") == 1 and "nan" not in html


def test_a_confusion_matrix_says_what_was_taken_for_what() -> None:
    gold = ["a", "a", "b", HEBREW, HOSTILE[0]]
    predicted = ["a", "b", "b", HEBREW, "a"]
    found = attnkit.confusion(predicted, gold)
    assert found.counts[found.labels.index("a")][found.labels.index("b")] == 1 and found.accuracy == 60
    fragment = Fragment(found._repr_html_())
    cells = [text for text in fragment.of("td") if text.isdigit()]
    assert cells == [str(n) for row in found.counts for n in row]
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["classes"]["a"] == {"precision": 50.0, "recall": 50.0, "f1": 50.0, "expected": 2, "found": 2}
    assert found.page("Title").startswith("<!doctype html>")
    assert attnkit.confusion(["b"], ["a"], ["b", "a"]).counts == [[0, 0], [1, 0]]
    with pytest.raises(DataError, match="unknown label 'c'"):
        attnkit.confusion(["c"], ["a"], ["a", "b"])


def test_a_projection_keeps_places_and_names(tmp_path: Path) -> None:
    words = [*HOSTILE[:4], HEBREW, *(f"word{i}" for i in range(60))]
    vectors = Vectors(words, DRAWN.normal(size=(len(words), 7)).astype(np.float32))
    vectors.save(tmp_path / "a.safetensors")
    found = attnkit.project(vectors)
    assert np.array_equal(attnkit.project(tmp_path / "a.safetensors").points, found.points)
    assert json.loads(json.dumps(found.to_dict()))["points"] == found.points.tolist()
    html = found._repr_html_()
    fragment = Fragment(html)
    dots = [[float(attrs[axis] or 0) for axis in ("cx", "cy")] for tag, attrs in fragment.elements if tag == "circle"]
    # Equal scales: all distances are the same multiple of those of the points.
    places, points = np.array(dots), found.points
    shown, real = (np.linalg.norm(each[1:] - each[:-1], axis=1) for each in (places, points))
    assert len(dots) == len(words) and np.allclose(shown / real, (shown / real)[0], rtol=0.02)
    assert places[:, 0].argmax() == points[:, 0].argmax() and places[:, 1].argmin() == points[:, 1].argmax()
    assert len(fragment.of("title")) == len(words) and HEBREW in fragment.of("title")
    assert found.page().startswith("<!DOCTYPE html>")


def test_labels_of_a_projection_do_not_cover_each_other() -> None:
    n = MAX_DOTS + 5
    vectors = Vectors([f"w{i}" for i in range(n)], DRAWN.normal(size=(n, 3)).astype(np.float32))
    html = attnkit.project(vectors)._repr_html_()
    fragment = Fragment(html)
    assert f"The first {MAX_DOTS:,} words are shown." in html and html.count("<circle") == MAX_DOTS
    texts = [attrs for tag, attrs in fragment.elements if tag == "text"]
    boxes = [(float(one["x"] or 0), float(one["y"] or 0)) for one in texts]
    assert 20 < len(boxes) <= MAX_LABELS
    assert all(abs(x - a) > 12 or abs(y - b) >= 13 for i, (x, y) in enumerate(boxes) for a, b in boxes[:i])


def test_a_toy_corpus_is_that_of_its_command(tmp_path: Path) -> None:
    paths = attnkit.toy_corpus("reviews", tmp_path / "called", pairs=30, valid=4, test=5, seed=3)
    typed = f"toy-corpus reviews -o {tmp_path / 'typed'} --pairs 30 --valid 4 --test 5 --seed 3"
    subprocess.run([sys.executable, "-m", "attnkit", *typed.split()], check=True, stdout=subprocess.DEVNULL)
    assert set(paths) == {"train.tsv", "valid.tsv", "test.tsv"}
    for name, path in paths.items():
        assert path.read_bytes() == (tmp_path / "typed" / name).read_bytes()
    assert attnkit.toy_corpus("reviews", tmp_path / "called", pairs=30, valid=4, test=5, seed=3) == paths
    with pytest.raises(UsageError, match="exists with different content"):
        attnkit.toy_corpus("reviews", tmp_path / "called", pairs=30, valid=4, test=5, seed=4)


def test_results_say_what_they_are(trained: Path) -> None:
    vectors = Vectors(["a", "b", "c"], np.eye(3, dtype=np.float32), name="mine")
    assert repr(attnkit.project(vectors)) == (
        "Projection(vectors: mine; words: the first 3 of 3; dimensions: 3; method: principal components)"
    )
    assert repr(attnkit.confusion(["a", "b"], ["a", "a"])) == "ConfusionMatrix(2 labels, 2 examples, accuracy 50.0 %)"
    curves = attnkit.curves(trained)
    said = f"RunCurves({trained}: {len(curves.steps)} losses, the last {curves.losses[-1]:.3f}; "
    assert repr(curves).startswith(said)
    found = attnkit.attend(trained, ["1 2"], targets=["2 1"], device="cpu")
    assert repr(found) == f"AttentionMaps({trained}: 1 line; cross, encoder, decoder)"
    assert repr(TranslationAttention([[[1.0, 0.0]]], [["a"]], [["b", "c"]])) == "TranslationAttention(1 x 2)"
    assert repr(TranslationAttention([], [], [])) == "TranslationAttention(no weights)"


def modules(package: str) -> list[str]:
    found = pkgutil.walk_packages(import_module(package).__path__, f"{package}.")
    return [package, *(one.name for one in found)]


@pytest.mark.parametrize(
    "name", [*modules("attnkit.library"), *modules("attnkit.progress"), *modules("attnkit.plotting")]
)
def test_examples_of_docstrings_are_right(name: str) -> None:
    module = import_module(name)
    assert doctest.testmod(module, extraglobs={"attnkit": attnkit}).failed == 0


def test_there_are_examples() -> None:
    texts = [Path(str(import_module(name).__file__)).read_text() for name in modules("attnkit.library")]
    assert sum(len(re.findall(r"^ +>>> ", text, re.MULTILINE)) for text in texts) >= 4


def test_recorded_attention_leaves_the_threads_of_torch(trained: Path) -> None:
    """Their number changes the last bits of other models' scores in the same process."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        attnkit.Translator.load(trained, device="cpu").translate(["1 2"], attention=True)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
