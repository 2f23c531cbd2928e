"""The page is silent, asks for nothing, and takes whatever occurs in a token as text."""

from __future__ import annotations

import re
from pathlib import Path

from chromium import Browser
from looked import quiet, tour, tree, weights

from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, display_text
from attnkit.plotting.html.attention import build_page

PAYLOADS = (
    "</script><img src=x onerror=pwned()>",
    "<script>pwned()</script>",
    "<img src=x onerror=pwned()>",
    "<svg onload=pwned()>",
    "<svg><script>pwned()</script></svg>",
    "</title><script>pwned()</script>",
    "</style><script>pwned()</script>",
    "</textarea><script>pwned()</script>",
    "--><script>pwned()</script>",
    "<!--<script>",
    "<!--</script><script>pwned()</script>",
    "]]><script>pwned()</script>",
    '" onmouseover="pwned()" x="',
    "' onfocus='pwned()' autofocus='",
    "` onerror=`pwned()`",
    "javascript:pwned()",
    "<a href=javascript:pwned()>x</a>",
    "<iframe srcdoc='<script>parent.pwned()</script>'>",
    "<iframe src=javascript:parent.pwned()>",
    "<object data=javascript:pwned()>",
    "<embed src=//example.invalid/x>",
    "<link rel=stylesheet href=//example.invalid/x>",
    "<meta http-equiv=refresh content=0;url=//example.invalid>",
    "<base href=//example.invalid/>",
    "<form action=//example.invalid><input autofocus onfocus=pwned()>",
    "<details open ontoggle=pwned()>",
    "<style>@import '//example.invalid/x';*{background:url(//example.invalid/y)}</style>",
    "\\u003cimg src=x onerror=pwned()\\u003e",
    "&lt;img src=x onerror=pwned()&gt;",
    "${pwned()}{{constructor.constructor('pwned()')()}}\u2028\u202e\0",
)
ELEMENTS = (
    "img, iframe, object, embed, form, base, textarea, link:not([rel=icon]), style + style, audio, video, foreignObject"
)


def test_it_is_silent_and_asks_for_nothing(browser: Browser, page: Path) -> None:
    browser.open(page)
    tour(browser)
    browser.ask("document.querySelector('#sentence').value = '1'")
    browser.ask("document.querySelector('#sentence').dispatchEvent(new Event('change'))")
    browser.settle()
    tour(browser)
    quiet(browser)
    assert browser.ask("document.querySelectorAll('#cells tr').length") == 129


def test_the_checks_would_see_a_hit(browser: Browser, page: Path, tmp_path: Path) -> None:
    """Without its policy the page runs what is put into it; with it the console complains and nothing runs."""
    hit = "<script>pwned = 1</script><img src='https://example.invalid/x' onerror='pwned = 1'>"
    text = page.read_text(encoding="utf-8").replace("</main>", f"{hit}</main>")
    (tmp_path / "guarded.html").write_text(text, encoding="utf-8")
    browser.open(tmp_path / "guarded.html")
    assert browser.ask("typeof pwned") == "undefined" and len(browser.complaints()) >= 2
    open_text = re.sub(r'<meta http-equiv="Content-Security-Policy".*>', "", text)
    (tmp_path / "open.html").write_text(open_text, encoding="utf-8")
    browser.open(tmp_path / "open.html")
    assert browser.ask("pwned") == 1 and browser.requests() == ["https://example.invalid/x"]


def test_thirty_payloads_are_harmless(browser: Browser, tmp_path: Path) -> None:
    assert len(set(PAYLOADS)) == 30
    maps = [
        AttentionMap(kind, PAYLOADS, PAYLOADS, weights((2, 2, 30, 30), 5), PAYLOADS[:2])
        for kind in ("cross", *PAYLOADS[:2])
    ]
    facts = {payload: payload for payload in PAYLOADS}
    sentences = [
        AttentionExample(payload, payload, maps[:1] if i else maps, tree(PAYLOADS), facts)
        for i, payload in enumerate(PAYLOADS)
    ]
    path = tmp_path / "hostile.html"
    path.write_text(build_page(sentences, facts), encoding="utf-8")
    browser.open(path)
    tour(browser)
    assert browser.ask("typeof pwned") == "undefined"
    assert browser.ask(f"document.querySelectorAll({ELEMENTS!r}).length") == 0
    hooked = "[...document.querySelectorAll('*')].some((e) => e.getAttributeNames().some((n) => /^on/.test(n)))"
    assert browser.ask(hooked) is False
    words = browser.ask("[...document.querySelectorAll('#source .token')].map((each) => each.textContent)")
    assert words == [display_text(payload) for payload in PAYLOADS]
    assert browser.ask("location.href") == path.as_uri()
    quiet(browser)
