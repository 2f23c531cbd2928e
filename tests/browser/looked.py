"""What the tests of the page look at, and a tour through everything that it shows."""

from __future__ import annotations

from typing import Any

import numpy as np
from chromium import Browser

from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, BeamNode


def weights(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.4), shape[:-1]).astype(np.float32)


def tree(tokens: Any) -> list[BeamNode]:
    """A kept trunk that ends well, with a dropped and a finished branch at each word."""
    found: list[BeamNode] = []
    parent: int | None = None
    for step, token in enumerate(tokens):
        last = step == len(tokens) - 1
        trunk = len(found)
        found.append(
            BeamNode(step, parent, token, -0.3 * step, "ended" if last else "open", -0.4 if last else None, True)
        )
        found.append(BeamNode(step, parent, f"{token}?", -1.0 - step, "pruned", None, False))
        found.append(BeamNode(step, parent, "▁un", -0.7 - step, "open", None, False))
        if step % 3 == 2:
            found.append(BeamNode(step + 1, len(found) - 1, "</s>", -2.0 - step, "ended", -1.5, False))
        parent = trunk
    return found


SRC = ["▁The", "▁cat", "▁sat", "▁on", "▁the", "▁mat", ".", "</s>"]
TGT = ["▁Le", "▁chat", "▁était", "▁assis", "▁sur", "▁la", "▁nat", "te", ".", "</s>"]
CROSS = AttentionMap("cross", TGT, SRC, weights((3, 4, 10, 8), 1), ["scaled_dot x softmax", "additive x softmax"] * 2)
ENCODER = AttentionMap("encoder", SRC, SRC, weights((2, 4, 8, 8), 2))
DECODER = AttentionMap("decoder", TGT, ["<s>", *TGT[:-1]], np.tril(weights((3, 4, 10, 10), 3)))
FACTS = {"run": "run", "checkpoint": "step-400", "model": "transformer, encoder layers: 2, decoder layers: 3"}
SENTENCE = AttentionExample(
    "The cat sat on the mat.",
    "Le chat était assis sur la natte.",
    [CROSS, ENCODER, DECODER],
    tree(TGT),
    {"score": -0.1034, "log_prob": -1.0342, "beam_size": 4},
)
LONG = AttentionExample(
    "w " * 127, "v " * 127, [AttentionMap("cross", ["v"] * 128, ["w"] * 128, weights((1, 2, 128, 128), 4))]
)


def quiet(browser: Browser) -> None:
    assert browser.complaints() == []
    assert browser.requests() == []


def tour(browser: Browser) -> None:
    """Look at everything the page shows of its first sentence."""
    for choice in ("lines", "matrix"):
        browser.ask(f"document.querySelector('input[name=view][value={choice}]').click()")
        browser.settle()
    browser.ask("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    browser.ask("document.querySelector('#pruned').click()")
    browser.settle()
    for kind in range(browser.ask("document.getElementsByName('kind').length")):
        browser.ask(f"document.getElementsByName('kind')[{kind}].click()")
        browser.settle()
    for _ in range(3):
        browser.ask("document.querySelector('#plot').focus()")
        browser.key("ArrowDown")


def choose(browser: Browser, layer: int, head: str) -> None:
    browser.ask(f"document.querySelector('input[name=layer][value=\"{layer}\"]').click()")
    browser.ask(f"document.querySelector('input[name=head][value=\"{head}\"]').click()")
    browser.settle()
