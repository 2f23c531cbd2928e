"""Vectors of BERT and GPT against loops that read one text at a time, window by window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language import configure

from attnkit.analysis.embed import EmbedTotals, Request, embed_stream
from attnkit.analysis.embed_transformer import Reader, line_vectors, open_reader, token_vectors
from attnkit.errors import UsageError
from attnkit.models.bert import Bert
from attnkit.models.layers import PackedLayout
from attnkit.protocols import BOS_ID, EOS_ID

LINES = [
    "the film was superb",
    "",
    "a",
    "  people  came home again",
    "the film was superb",
    "ünknown ✓ words [MASK] too",
]
LONG = "some people who went to see it came back home again and then some people went to see the film"


@pytest.fixture(scope="module")
def runs(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Weights far from those drawn, so that every token matters."""
    found = {}
    for name, task, *sets in (("masked tokens", "mlm"), ("next words", "clm", "direction=right-to-left")):
        found[name] = tmp_path_factory.mktemp("language") / "run"
        given = [
            "model.n_layers=2",
            "limits.max_steps=2",
            "optimization.learning_rate=0.3",
            "optimization.warmup_steps=1",
        ]
        workshop.train(configure(task, [workshop.file("text.txt")], *given, *sets), found[name])
    return found


def alone(reader: Reader, ids: list[int]) -> np.ndarray[Any, Any]:
    """Return the features of a row that holds these tokens alone, with those of the symbols around them."""
    turned = ids[::-1] if reader.backwards else ids
    row = [BOS_ID, *turned, *([EOS_ID] if isinstance(reader.model, Bert) else [])]
    with torch.no_grad():
        found = reader.model.hidden(torch.tensor([row]), PackedLayout.unpacked(1), layers=reader.layer)[0].numpy()
    inner = found[1 : 1 + len(ids)]
    return np.concatenate([found[:1], inner[::-1] if reader.backwards else inner])


def windows_of(n: int, room: int) -> list[tuple[int, int]]:
    """Return where windows begin and end, the next one half a window behind."""
    begins, stride = [0], room // 2
    while begins[-1] + room < n:
        begins.append(min(begins[-1] + stride, n - room))
    return [(begin, min(begin + room, n)) for begin in begins]


def by_hand(reader: Reader, text: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the features of the tokens of a text, each of its best window, and the mean of the windows' beginnings."""
    ids = reader.tokenizer.encode([text])[0]
    windows = windows_of(len(ids), reader.max_tokens)
    read = [alone(reader, ids[begin:end]) for begin, end in windows]
    tokens = []
    for place in range(len(ids)):
        seen = [(min(place - b, e - 1 - place) if b <= place < e else -1, -n) for n, (b, e) in enumerate(windows)]
        best = -max(seen)[1]
        tokens.append(read[best][1 + place - windows[best][0]])
    return np.array(tokens).reshape(-1, reader.width), np.mean([one[0] for one in read], 0)


@pytest.mark.parametrize("layer", [0, 1, None])
@pytest.mark.parametrize("name", ["masked tokens", "next words"])
def test_a_line_is_the_mean_of_its_tokens(runs: dict[str, Path], name: str, layer: int | None) -> None:
    reader = open_reader(runs[name], layer, "cpu")
    texts = [*LINES, LONG, f"{LONG} {LONG} {LONG}", "again " * 11]
    assert max(map(len, reader.tokenizer.encode(texts))) > 4 * reader.max_tokens, "or no windows to speak of"
    found = line_vectors(reader, texts, "mean")
    for text, vector in zip(texts, found, strict=True):
        tokens, first = by_hand(reader, text)
        expected = tokens.mean(0) if len(tokens) else np.zeros(reader.width)
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            token_vectors(reader, reader.tokenizer.encode([text])[0]), tokens, rtol=1e-4, atol=1e-5
        )
        if name == "masked tokens":
            np.testing.assert_allclose(line_vectors(reader, [text], "cls")[0], first, rtol=1e-4, atol=1e-5)


def test_layers_differ_and_the_last_is_what_the_model_gives(runs: dict[str, Path]) -> None:
    found = [line_vectors(open_reader(runs["masked tokens"], layer, "cpu"), LINES, "mean") for layer in (0, 1, 2, None)]
    assert np.array_equal(found[2], found[3])
    assert abs(found[0] - found[1]).max() > 0.1 and abs(found[1] - found[2]).max() > 0.1


@pytest.mark.parametrize("what", ["mean", "cls"])
def test_what_is_read_beside_a_line_changes_nothing(runs: dict[str, Path], what: Any) -> None:
    reader = open_reader(runs["masked tokens"], None, "cpu")
    texts = [*LINES, LONG, *(f"{LONG} {'again ' * n}" for n in range(30))]
    together = line_vectors(reader, texts, what)
    order = np.random.default_rng(1).permutation(len(texts))
    np.testing.assert_allclose(line_vectors(reader, [texts[i] for i in order], what), together[order], atol=1e-6)
    for i, text in enumerate(texts):
        np.testing.assert_allclose(line_vectors(reader, [text], what)[0], together[i], atol=1e-6)
    assert line_vectors(reader, [], what).shape == (0, reader.width)


def test_the_table_is_the_embeddings_with_a_name_for_each_row(runs: dict[str, Path]) -> None:
    reader = open_reader(runs["masked tokens"], None, "cpu")
    request = Request(runs["masked tokens"], [], device="cpu", what="static")
    (block,) = embed_stream(request, EmbedTotals(), pytest.fail)
    assert block.numbers is not None and block.inputs is not None
    assert np.array_equal(block.numbers, reader.model.embedding.weight.detach().numpy())
    assert len(set(block.inputs)) == len(block.inputs) == reader.tokenizer.vocab_size
    shown = reader.tokenizer.tokens(range(reader.tokenizer.vocab_size))
    for name, piece in zip(block.inputs, shown, strict=True):
        assert name == piece or name.startswith(f"{piece}#")
    assert block.inputs[reader.tokenizer.encode(["the"])[0][0]] == "▁the"


def test_what_a_model_has_not_is_refused(runs: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="this model has no layer 3") as caught:
        open_reader(runs["masked tokens"], 3, "cpu")
    assert caught.value.help == "choose 0 (embeddings) to 2 (last layer)"
    with pytest.raises(UsageError, match=r"GPT has no \[CLS\] vector: its first token attends only to itself"):
        line_vectors(open_reader(runs["next words"], None, "cpu"), LINES, "cls")
    with pytest.raises(UsageError, match="--layer cannot be combined with --what static"):
        request = Request(runs["masked tokens"], [], device="cpu", what="static", layer=1)
        list(embed_stream(request, EmbedTotals(), pytest.fail))
