"""The page: whatever occurs in a token stays text, every weight comes back as it was rounded, and it stays small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, BeamNode
from attnkit.plotting.html.attention import build_page, pack, pack_all

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]><svg onload=alert(1)>",
    '"><b>&lt;',
    "\u2028\u202e\ud800\0",
    "@@SCRIPT@@",
    "{{x}}${1}\\u003c",
)


class Tags(HTMLParser):
    """Collects elements, what occurs in scripts and styles, and attributes, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.inside: list[tuple[dict[str, str | None], str]] = []
        self._open: dict[str, str | None] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._open = dict(attrs) if tag in ("script", "style") else None
        if self._open is not None:
            self.inside.append((self._open | {"tag": tag}, ""))

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            attributes, text = self.inside.pop()
            self.inside.append((attributes, text + data))

    def handle_endtag(self, tag: str) -> None:
        self._open = None


def sentence(tokens: tuple[str, ...]) -> AttentionExample:
    n = len(tokens)
    weights = np.random.default_rng(1).dirichlet(np.ones(n), (2, 2, n)).astype(np.float32)
    tree = [BeamNode(0, None, tokens[0], -1.0, "ended", -0.5, True)]
    maps = [AttentionMap(kind, tokens, tokens, weights, tokens[:2]) for kind in ("cross", tokens[0])]
    return AttentionExample(tokens[0], tokens[1], maps, tree, {"score": -1.0, "said": tokens[0]})


def data_of(page: Tags) -> Any:
    return next(json.loads(text) for attributes, text in page.inside if attributes.get("id") == "data")


def unpacked(text: str, shape: tuple[int, ...]) -> np.ndarray:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).astype(np.int64).reshape(2, -1)
    return (planes[0] + 256 * planes[1]).reshape(shape)


def test_no_token_becomes_markup() -> None:
    benign, hostile = sentence(("a", "b", "c", "d", "e", "f", "g")), sentence(HOSTILE)
    found = Tags(build_page([hostile], {"run": HOSTILE[0]}))
    plain = Tags(build_page([benign], {"run": "a"}))
    assert found.tags == plain.tags
    assert [each[:2] for each in found.attributes] == [each[:2] for each in plain.attributes]
    data = data_of(found)["sentences"][0]
    assert data["maps"][0]["keys"][:2] == list(HOSTILE[:2])
    assert data["maps"][0]["keys"][4] == "<U+2028><U+202E><U+D800><U+0000>"
    assert (data["source"], data["tree"][0]["token"]) == (HOSTILE[0], HOSTILE[0])
    assert all(attributes.get("type") for attributes, _ in found.inside[1:-1]), "data is no script"


def test_the_policy_allows_this_script_and_this_style_alone() -> None:
    page = Tags(build_page([sentence(HOSTILE)], {}))
    (policy,) = [
        value for tag, name, value in page.attributes if tag == "meta" and name == "content" and "src" in value
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for name, kind in (("script-src", "script"), ("style-src", "style")):
        texts = [text for attributes, text in page.inside if attributes["tag"] == kind and "type" not in attributes]
        assert len(texts) == 1
        digest = base64.b64encode(hashlib.sha256(texts[0].encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert (rules["img-src"], rules["require-trusted-types-for"]) == ("data:", "'script'")
    assert page.attributes.index(("meta", "content", policy)) < page.attributes.index(("link", "rel", "icon"))


def test_nothing_in_it_leads_elsewhere() -> None:
    page = build_page([sentence(HOSTILE[1:])], {})
    assert set(re.findall(r"[a-z]+://[^\"' ]*", page)) == {"http://www.w3.org/2000/svg"}
    links = [value for _, name, value in Tags(page).attributes if name in ("src", "href", "action", "style", "srcset")]
    assert sorted(map(str, links)) == ["#plot", "data:,"]
    assert not [name for _, name, _ in Tags(page).attributes if name.startswith("on")]
    script = Tags(page).inside[-1][1]
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval",
        "fetch",
        "XMLHttp",
        "import",
    ):
        assert forbidden not in script


@pytest.mark.parametrize("digits", [2, 3, 4])
def test_weights_come_back_rounded_once(digits: int) -> None:
    weights = np.random.default_rng(2).dirichlet(np.full(9, 0.3), (3, 4, 7)).astype(np.float32)
    weights[0, 0, 0] = [1, 0, 0, 0, 0, 0, 0, 0, 0]
    found = unpacked(pack(AttentionMap("cross", "abcdefg", "abcdefghi", weights), digits), (3, 5, 7, 9))
    exact = np.concatenate([weights, weights.astype(np.float64).mean(1, keepdims=True)], 1)
    assert np.abs(found / 10**digits - exact).max() <= 0.5 * 10**-digits + 1e-12
    assert found[0, 0, 0].tolist() == [10**digits, 0, 0, 0, 0, 0, 0, 0, 0]
    for row in zip(found[:, :4].ravel()[:60].tolist(), weights.ravel()[:60].tolist(), strict=True):
        assert f"{row[0] / 10**digits:.{digits}f}" == f"{row[1]:.{digits}f}"


def test_weights_that_are_no_shares_are_held_in_bounds() -> None:
    weights = np.array([[[[np.nan, np.inf, -1.0, 9.0]]]], np.float32)
    assert unpacked(pack(AttentionMap("cross", "a", "abcd", weights), 4), (2, 4))[0].tolist() == [0, 65000, 0, 65535]


def test_decimals_are_given_up_where_there_is_no_room() -> None:
    rng = np.random.default_rng(3)
    maps = [
        AttentionMap(kind, "ab" * 20, "ab" * 20, rng.dirichlet(np.ones(40), (1, 1, 40)))
        for kind in ("cross", "encoder")
    ]

    def sizes(digits: int) -> list[int]:
        return [len(pack(map, digits)) for map in maps]

    def digits(room: int) -> list[int]:
        found = pack_all(maps, room)
        assert found == [(n, pack(map, n)) for (n, _), map in zip(found, maps, strict=True)]
        return [n for n, _ in found]

    assert digits(sum(sizes(4))) == [4, 4]
    assert digits(sum(sizes(4)) - 1) == [4, 3], "the first map keeps what it has"
    assert digits(sum(sizes(3))) == [3, 3]
    assert digits(sizes(3)[0] + sizes(2)[1]) == [3, 2]
    assert digits(0) == [2, 2], "never fewer than two"


@pytest.mark.parametrize("kinds", [["cross", "encoder", "decoder"]], ids=len)
@pytest.mark.slow
def test_twelve_layers_and_heads_of_128_tokens_take_less_than_4_mb(kinds: list[str]) -> None:
    """Of noise, which nothing compresses: every weight of a row is as uncertain as its mean allows, more or less."""
    tokens, rng, maps = [f"token{i}" for i in range(128)], np.random.default_rng(4), []
    for kind in kinds:
        weights = np.exp(rng.standard_normal((12, 12, 128, 128), dtype=np.float32))
        weights = np.tril(weights) if kind == "decoder" else weights
        maps.append(AttentionMap(kind, tokens, tokens, weights / weights.sum(-1, keepdims=True)))
    page = build_page([AttentionExample("a", "b", maps)], {})
    assert len(page.encode()) <= 4_000_000
    digits = data_of(Tags(page))["digits"]
    assert digits[0] >= 3 and min(digits) >= 2
    packed = re.search(r'id="weights-0">([^<]*)<', page)
    assert packed is not None
    found = unpacked(packed[1], (12, 13, 128, 128))[:, :12] / 10 ** digits[0]
    assert np.abs(found - maps[0].weights).max() <= 0.5 * 10 ** -digits[0] + 1e-9


def test_an_empty_page_is_a_page() -> None:
    assert data_of(Tags(build_page([], {})))["sentences"] == []
