"""Reading HTML, Markdown, XLIFF and subtitles: what is text, what is markup, and that nothing is lost."""

from __future__ import annotations

import html
import itertools
import random
import re
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from attnkit.errors import DataError
from attnkit.formats.attributes import html_values, markdown_values
from attnkit.formats.documents import (
    PARSERS,
    DocumentFormat,
    describe,
    parse_document,
    parse_line,
    read_document,
    with_language,
)
from attnkit.formats.html import html_faults
from attnkit.formats.passages import Passage, Piece, Tag, Value, render

HERE = Path("page")


def shown(piece: Piece) -> str:
    """Return a passage with its tags in braces."""
    assert isinstance(piece, Passage)
    return "".join(f"{{{part.text}}}" if isinstance(part, Tag) else part for part in piece.parts)


def passages(text: str, format: DocumentFormat) -> list[str]:
    return [shown(piece) for piece in parse_document(text, format, HERE) if isinstance(piece, Passage)]


HTML = {
    "<p>A <b>red</b> hat</p>": ["A {<b>}red{</b>} hat"],
    "<p><b>All</b></p>": ["All"],
    "<p>One<br>Two</p>": ["One", "Two"],
    "<p>One<p>Two": ["One", "Two"],
    "<p>a &lt; b &amp; &eacute;</p>": ["a < b & é"],
    "<p>one\n   two</p>": ["one two"],
    "<p>Run <code>a <b>x</b></code> now</p>": ["Run {<code>a <b>x</b></code>} now"],
    "<p>See <img src='a>b'> it</p>": ["See {<img src='a>b'>} it"],
    "<script>if (a<b) 'x'</script><style>p{}</style><pre>code</pre>": [],
    "<p translate='no'>keep <b>this</b></p><p>not this</p>": ["not this"],
    "<p>A <span class='x notranslate'>Brand</span> name</p>": ["A {<span class='x notranslate'>Brand</span>} name"],
    "<!-- <p>no</p> --><title>Yes</title>": ["Yes"],
    "<p>a <!-- x --> b</p>": ["a {<!-- x -->} b"],
    "<p><b>one <i>two</b> three</i></p>": ["{<b>}one {<i>}two{</b>} three"],
    "<p>unclosed <code>here</p>": ["unclosed {<code>}here"],
    "plain text": ["plain text"],
    "a < b and c > d": ["a < b and c > d"],
    "<table><tr><td>x</td><td>y</td></tr></table>": ["x", "y"],
    "<p> </p>": [],
}


@pytest.mark.parametrize("text", HTML)
def test_html(text: str) -> None:
    assert passages(text, "html") == HTML[text]


ESCAPED = {
    "A man sings &lt;b&gt;loud&lt;/b&gt;.": "A man sings {&lt;b&gt;}loud{&lt;/b&gt;}.",
    "x &lt;a href=\"u?a&amp;b\" title='x y' hidden&gt;y&lt;/a> z": (
        "x {&lt;a href=\"u?a&amp;b\" title='x y' hidden&gt;}y{&lt;/a>} z"
    ),
    "x &lt;i id=&quot;a b&quot;&gt;y&lt;/i&gt; &lt;br/&gt; z": (
        "x {&lt;i id=&quot;a b&quot;&gt;}y{&lt;/i&gt;} {&lt;br/&gt;} z"
    ),
    "use &lt;name&gt; or &#60;b&#x3E;x&#60;/b&#x3E; y": "use {&lt;name&gt;} or {&#60;b&#x3E;}x{&#60;/b&#x3E;} y",
    "of &amp;lt;b&amp;gt;x&amp;lt;/b&amp;gt; y": "of {&amp;lt;b&amp;gt;}x{&amp;lt;/b&amp;gt;} y",
    "is 5 &lt; 6 and a &lt;b and c&gt; d": None,
}
"""Text, and what is read of it; None: as before."""


@pytest.mark.parametrize("text", ESCAPED)
def test_tags_written_with_entities_are_tags(text: str) -> None:
    """Formats that decode entities and others alike; an escaped tag is no partner of another."""
    xliff = f'<xliff><file datatype="html"><trans-unit><source>{text}</source></trans-unit></file></xliff>'
    assert passages(f"<p>{text}</p>", "html") == passages(xliff, "xliff") == [ESCAPED[text] or html.unescape(text)]
    assert passages(text, "markdown") == [ESCAPED[text] or text]
    [line] = [piece for piece in parse_line(text) if isinstance(piece, Passage)]
    assert shown(line) == (ESCAPED[text] or text) and render(parse_line(text)) == text
    assert passages("a <b>b &lt;b&gt;c</b> d&lt;/b&gt; e", "html") == ["a {<b>}b {&lt;b&gt;}c{</b>} d{&lt;/b&gt;} e"]


MARKDOWN = {
    "# Title #": ["Title"],
    "one\ntwo": ["one two"],
    "one  \ntwo": ["one", "two"],
    "a *b* c": ["a {*}b{*} c"],
    "a **b *c* d** e": ["a {**}b {*}c{*} d{**} e"],
    "**a *b*** c": ["{**}a {*}b{*}{**} c"],
    "***a** b* c": ["{*}{**}a{**} b{*} c"],
    "***a* b** c ***d***": ["{**}{*}a{*} b{**} c {*}{**}d{**}{*}"],
    "[a *b*](x) **c": ["{[}a {*}b{*}{](x)} **c"],
    "2 * 3 * 4 snake_case_name a*": ["2 * 3 * 4 snake_case_name a*"],
    r"a \*b\* c": ["a *b* c"],
    "a `co*d*e` b ``x`y`` c": ["a {`co*d*e`} b {``x`y``} c"],
    "a [b *c*](http://x.y/a_(b) 'T') d": ["a {[}b {*}c{*}{](http://x.y/a_(b) 'T')} d"],
    "a [b][ref] c [d] e": ["a {[}b{][ref]} c [d] e"],
    "see ![pic](a.png) here[^1].": ["see {![pic](a.png)} here{[^1]}."],
    "see <http://x.y> and $a_1 + b$ now": ["see {<http://x.y>} and {$a_1 + b$} now"],
    "- one\n- two\n  more": ["one", "two more"],
    "1. one\n2) two": ["one", "two"],
    "- [x] done\n- [ ] open": ["done", "open"],
    "> quote\n> more\n\ntext": ["quote more", "text"],
    "```py\n# no\n```\nyes": ["yes"],
    "~~~\nno\n\nno": [],
    "yes\n\n    no\n\nyes": ["yes", "yes"],
    "---\ntitle: no\n---\nyes": ["yes"],
    "Title\n=====\n\ntext": ["Title", "text"],
    "| a | b |\n|---|:-:|\n| c \\| d | *e* |": ["a", "b", "c | d", "e"],
    "<div>\nA <b>x</b> b\n</div>\n\ntext": ["A {<b>}x{</b>} b", "text"],
    "[ref]: http://x.y\n[^1]: A note": ["A note"],
    "a <b>c</b> d": ["a {<b>}c{</b>} d"],
    "***\n___\n* * *": [],
    "": [],
}


@pytest.mark.parametrize("text", MARKDOWN)
def test_markdown(text: str) -> None:
    assert passages(text, "markdown") == MARKDOWN[text]


SUBTITLES = (
    "1\r\n00:00:01,000 --> 00:00:02,500\r\n{\\an8}A man\r\nis <i>here</i>.\r\n\r\n"
    "2\n00:00:03,000 --> 00:00:04,000\n- Hi.\n- <b>Hello</b>.\n\n\n3\n00:05.0 --> 00:06.0\nBye\n"
)


def test_subtitles() -> None:
    assert passages(SUBTITLES, "srt") == ["A man is {<i>}here{</i>}.", "Hi.", "{<b>}Hello{</b>}.", "Bye"]
    vtt = "WEBVTT\n\nNOTE no\n\n00:01.000 --> 00:02.000 line:0\n<v Bob>Yes</v>\n"
    assert passages(vtt, "srt") == ["Yes"] and render(parse_document(vtt, "srt", HERE)) == vtt


CUES = {
    "{\\an8}- A man runs.\n- He stops\nhere.": ["A man runs.", "He stops here."],
    "- A man runs.": ["A man runs."],
    "<i>- A man</i> runs.\r\n<b>Now</b>.": ["A man{</i>} runs. {<b>}Now{</b>}."],
    "Who runs?\n{\\an8} – A man.": ["Who runs?", "A man."],
    "-- and now": ["and now"],
    "♪ A song\nis sung ♪": ["A song is sung"],
    "- ♫ A song ♪ is sung ♫": ["A song {♪} is sung"],
    "# A song #\nis #1": ["A song {#} is #1"],
    "A - man\nruns": ["A - man runs"],
    "{\\an8}\n{\\i1}A man{\\i0}\nruns": ["A man{{\\i0}} runs"],
}


@pytest.mark.parametrize("cue", CUES)
def test_dashes_positions_and_music_signs_of_cues_stay(cue: str) -> None:
    """What a line begins with is no text of the model's."""
    text = f"1\n00:00:01,000 --> 00:00:02,000\n{cue}\n\n"
    assert passages(text, "srt") == CUES[cue]
    written = render(parse_document(text, "srt", HERE))
    assert written.split() == text.split() and written.count("\n") == text.count("\n")
    assert written.count("\r\n") == text.count("\r\n")


def test_a_cue_is_broken_into_as_many_lines() -> None:
    text = "1\n00:01,0 --> 00:02,0\none\ntwo three <i>four</i> five\n\n"
    pieces = parse_document(text, "srt", HERE)
    assert render(pieces).split("\n")[2:] == ["one two three", "<i>four</i> five", "", ""]
    long = [Passage(["word"], breaks=("\n", "\n"))]
    assert render(long) == "word"


XLIFF = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a"><body>
  <trans-unit id="1">
    <source>A <g id="1">red</g> hat &amp; <x id="2"/>dog</source>
  </trans-unit>
  <trans-unit id="2"><source>Empty</source><target state="new"/></trans-unit>
  <trans-unit id="3"><source>Done</source><target>Fertig</target></trans-unit>
  <trans-unit id="4" translate="no"><source>no</source></trans-unit>
  <trans-unit id="5"><source>In <ph id="1">&lt;br/&gt;</ph> out</source>
    <alt-trans><source>no</source></alt-trans></trans-unit>
</body></file></xliff>
"""


def test_xliff() -> None:
    found = ['A {<g id="1">}red{</g>} hat & {<x id="2"/>}dog', "Empty", 'In {<ph id="1">&lt;br/&gt;</ph>} out']
    assert passages(XLIFF, "xliff") == found
    written = render(parse_document(XLIFF, "xliff", HERE))
    assert written.count("<target>") + written.count("<target ") == 4
    assert '</source>\n    <target>A <g id="1">red</g> hat &amp; <x id="2"/>dog</target>\n  </trans-unit>' in written
    assert '<target state="new">Empty</target>' in written and "<target>Fertig</target>" in written
    assert passages(written, "xliff") == []  # all have targets now, which are kept
    inside = '<x:segment><x:source>A <x:pc id="1">b</x:pc></x:source></x:segment>'
    two = f'<x:xliff version="2.0" xmlns:x="u"><x:unit id="u">{inside}</x:unit></x:xliff>'
    assert '<x:target>A <x:pc id="1">b</x:pc></x:target>' in render(parse_document(two, "xliff", HERE))


def test_white_space_that_counts_is_kept_in_xliff() -> None:
    text = '<xliff><trans-unit xml:space="preserve"><source>one\n  two</source></trans-unit></xliff>'
    assert passages(text, "xliff") == ["one", "two"]
    assert "<target>one\n  two</target>" in render(parse_document(text, "xliff", HERE))


@pytest.mark.parametrize(
    ("text", "format", "what"),
    [
        ("<xliff><source></xliff>", "xliff", "page:1"),
        ("<xliff>\n<a>\n</xliff>", "xliff", "page:3"),
        ("<html></html>", "xliff", "not XLIFF"),
        ("no times", "srt", "no times"),
    ],
)
def test_what_is_not_of_the_format_is_refused(text: str, format: DocumentFormat, what: str) -> None:
    with pytest.raises(DataError) as found:
        parse_document(text, format, HERE)
    assert what in "\n".join(found.value.lines())


@pytest.mark.parametrize("raw", [b"", b"a\xff", b"ok\n\xe4"])
def test_unreadable_documents(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(raw)
    with pytest.raises(DataError):
        read_document(tmp_path / "page")


def test_lines_of_text_have_tags_and_no_entities() -> None:
    [piece] = [piece for piece in parse_line("a <b>c</b> &amp; d<br/>e < f") if isinstance(piece, Passage)]
    assert shown(piece) == "a {<b>}c{</b>} &amp; d{<br/>}e < f"
    assert render(parse_line("  a <b> c ")) == "  a <b> c "


VALUES: list[tuple[DocumentFormat, str, list[str]]] = [
    ("html", "<img src='a.png' alt='A dog'>", ["A dog"]),
    (
        "html",
        '<p>One <img alt="two &quot;x&quot; &amp; y" title = "three"> four</p>',
        ['two "x" & y', "three", "One  four"],
    ),
    ("html", "<p title=\"it's\">One <a href='alt=\"x\"' title='t'>two</a> three</p>", ["it's", "t", "One two three"]),
    ("html", '<p title=unquoted data-alt="no" lang="alt"><img alt=""/><img alt="  "/></p>', []),
    ("html", '<meta name="description" content="Dogs"/><meta name="viewport" content="no"/>', ["Dogs"]),
    ("html", '<meta property="og:title" content="Dogs"/><link rel="x" title="no"/>', ["Dogs"]),
    ("html", '<input type=submit value="Send"><input type="text" value="no" placeholder="Name">', ["Send", "Name"]),
    ("html", '<p>a <b translate="no" title="no">x</b> b</p><p class="notranslate" title="no">x</p>', ["a  b"]),
    ("html", '<select><option label="One">1</option></select><p aria-label="Two"></p>', ["One", "1", "Two"]),
    ("html", '<p>a <b title="t">x</p>', ["t", "a x"]),
    ("html", '<!-- <img alt="no"> --><script title="no"></script>', []),
    ("markdown", 'a ![two](b.png "three") c', ["two", "three", "a  c"]),
    ("markdown", 'a [two](b "three") c', ["three", "a two c"]),
    ("markdown", "a ![no][] ![no] ![one][no] c", ["one", "a  ![no]  c"]),
    ("markdown", "![alone](b.png)", ["alone"]),
    ("markdown", "a ![no\\[1](b) c", ["a !no[1 c"]),
    ("markdown", 'a <img alt="two"> c', ["two", "a  c"]),
]


def everything(pieces: Iterable[Piece]) -> list[str]:
    """Return the texts of passages, those of the values of their tags first."""
    found = []
    for piece in pieces:
        if isinstance(piece, Passage):
            for part in piece.parts:
                found += everything(part.pieces()) if isinstance(part, Tag) else []
            found.append(piece.text)
    return found


@pytest.mark.parametrize(("format", "text", "expected"), VALUES)
def test_what_readers_see_of_tags_is_translated(format: DocumentFormat, text: str, expected: list[str]) -> None:
    pieces = parse_document(text, format, HERE)
    assert sorted(everything(pieces)) == sorted(expected)
    assert letters(render(pieces)) == letters(text)


@pytest.mark.parametrize(
    ("tag", "values", "written"),
    [
        ('<a title="x">', html_values('<a title="x">', "a"), '<a title="&lt;it\'s &amp; &quot;so&quot;>">'),
        ("<a title='x'>", html_values("<a title='x'>", "a"), "<a title='&lt;it&#39;s &amp; \"so\">'>"),
        ('](u "x")', markdown_values('](u "x")'), '](u "<it\'s & \\"so\\">")'),
        ("](u 'x')", markdown_values("](u 'x')"), "](u '<it\\'s & \"so\">')"),
        ("![x](u)", markdown_values("![x](u)"), '![<it\'s & "so">](u)'),
    ],
)
def test_values_are_written_for_their_tag(tag: str, values: tuple[Value, ...], written: str) -> None:
    pieces = list(Tag(tag, "point", values=values).pieces())
    [passage] = [piece for piece in pieces if isinstance(piece, Passage)]
    found = render(Passage(['<it\'s & "so">'], passage.escape) if piece is passage else piece for piece in pieces)
    assert found.replace("&gt;", ">") == written


WORDS = [
    "dog",
    " ",
    "\n",
    "&amp;",
    "é",
    "<b>",
    "</b>",
    "<i>",
    "</i>",
    "<br>",
    "<p>",
    "</p>",
    "*",
    "**",
    "_",
    "`",
    "[",
    "](x)",
]
WORDS += [
    "# ",
    "- ",
    "> ",
    "|",
    "<code>",
    "</code>",
    "<!--",
    "-->",
    "![a](b)",
    '![a](b "c")',
    '<img alt="a &amp; b"/>',
    "<p title='a'>",
    "<img/>",
    '"',
    "<",
    ">",
    "1. ",
    "\\",
    "$",
    "&lt;b&gt;",
    "&lt;/b&gt;",
]


def letters(text: str) -> str:
    """Return a text without what may change: white space, backslashes, entities and marks of quotations."""
    return re.sub(r"[\s\\>]", "", html.unescape(text))


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_documents_of_chance_lose_nothing(format: DocumentFormat) -> None:
    """The words of all pieces are those of the document, and passages are balanced."""
    rng = random.Random(4)
    n_passages = 0
    for _ in range(3000):
        text = "".join(rng.choices(WORDS, k=rng.randint(1, 25)))
        pieces = PARSERS[format](text)
        n_passages += sum(isinstance(piece, Passage) for piece in pieces)
        assert letters(render(pieces)) == letters(text), text
        for piece in pieces:
            if isinstance(piece, Passage):
                stack = []
                for part in piece.parts:
                    if isinstance(part, Tag) and part.kind == "open":
                        stack.append(part.name)
                    elif isinstance(part, Tag) and part.kind == "close":
                        assert stack.pop() == part.name
                assert stack == [] and piece.text.strip()
    assert n_passages > 2000


NUMBERED = {
    "html": [
        "<p>{}\n{}</p>", "\n<p\n>\n {}</p>\n", "<td>{}</td><td>{}</td>", "<img\nalt='{}'\n>", "{} <b\n>x</b>\n{}\n",
        "<!--\n-->", "<p><i>\n{}</i></p>", "<pre>\n\n</pre>", "a <img\n alt='x'> {}\n", "<p>x</b>\n</i>{}</p>",
    ],
    "markdown": [
        "{}\n{}\n", "\n# {}\n", "\n- {}\n- {}\n  x\n", "\n| {} | {} |\n|---|---|\n| {} | x |\n", "\n```\nx\n```\n",
        "\n> {}  \n> {}\n", "\n<div>\n<p>{}</p>\n</div>\n\n", "\n{}\\\n{}\n",
    ],
    "xliff": [
        "<trans-unit>\n<source>{}</source></trans-unit>\n",
        "<trans-unit><source>\n {} <ph\n/>{}</source>\n</trans-unit>",
        "<trans-unit xml:space='preserve'><source>{}\n<g\n>{}</g>\n{}</source></trans-unit>",
        "<trans-unit>\n<source>x</source><target>\nx</target></trans-unit>",
    ],
    "srt": [
        "1\n00:00:01,000 --> 00:00:02,000\n{}\nx\n\n", "\n2\n00:00:01,000 --> 00:00:02,000\n- {}\n- {}\n\n",
        "00:00:01,000 --> 00:00:02,000\n<i>{}</i>\n\n\n",
    ],
}  # fmt: skip
"""Parts of documents: the words in place of the braces are numbered."""


@pytest.mark.parametrize("format", NUMBERED)
def test_passages_know_their_line(format: DocumentFormat) -> None:
    """A numbered word that a passage begins with is in its line."""
    rng, n_checked = random.Random(7), 0
    for _ in range(300):
        text = "".join(rng.choices(NUMBERED[format], k=rng.randint(1, 12)))
        text = re.sub(r"\{\}", lambda found, number=itertools.count(): f"w{next(number)}", text)  # type: ignore[misc]
        text = f"<xliff version='1.2'>\n{text}</xliff>" if format == "xliff" else text
        if format == "srt" and "-->" not in text:
            continue
        lines = text.split("\n")
        for piece in parse_document(text, format, HERE):
            if isinstance(piece, Passage) and (first := re.match(r"w\d+\b", piece.text)):
                assert re.search(rf"\b{first[0]}\b", lines[piece.line - 1]), (text, piece)
                n_checked += 1
    assert n_checked > 300


@pytest.mark.parametrize(
    "text",
    [
        "&lt;a ",
        "&lt;a x='",
        "&lt;a x=1 b ",
        "<a ",
        "<!--",
        "<code>",
        '<a "',
        "[",
        "*",
        "`",
        "_a",
        "<b>",
        "[a](",
        "$a",
        "<?",
        "![",
        "> ",
        "|",
    ],
)
@pytest.mark.parametrize("format", ["html", "markdown"])
def test_hostile_documents_take_linear_time(text: str, format: DocumentFormat) -> None:
    def seconds(n: int) -> float:
        began = time.process_time()
        PARSERS[format](text * n)
        return time.process_time() - began

    seconds(100)
    assert seconds(4000) < 40 * seconds(400) + 0.5  # quadratic would be 100 times


@pytest.mark.parametrize(
    ("page", "faults"),
    [
        ("<!DOCTYPE html><ul><li>a<li>b <b>c</b><br></ul><p>5 < 6<img alt='<b>'><!-- <i> --></p>", []),
        ("<p>a <b>b <i>c</b> d</i></p>", ["<i>", "</i>"]),
        ("<p>a <b>b</p><p>c</em></p>", ["<b>", "</em>"]),
        ("<p>a <b c</p>", ["<b"]),
        ("<script>if (a <b) c</script><pre><T></pre><https://a.org> <a@b.de>", []),
        ("<svg><rect/></svg></p></br></div>", ["</div>"]),
    ],
)
def test_tags_without_a_partner(page: str, faults: list[str]) -> None:
    assert [tag for _, tag in html_faults(page)] == faults
    assert [page[place : place + len(tag)] for place, tag in html_faults(page)] == faults


def test_faults_are_found_in_linear_time() -> None:
    began = time.process_time()
    assert len(html_faults("<b>" * 30_000 + "<i>a</u>" * 30_000)) == 90_000
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<html id="x" lang=en xml:lang="en-US"><p lang="en">', '<html id="x" lang=de xml:lang="de"><p lang="de">'),
        ('<html lang="en"><i lang="fr">a</i><a hreflang="en">', '<html lang="de"><i lang="fr">a</i><a hreflang="en">'),
        ('<html lang="en"><b lang="en" translate="no">', '<html lang="de"><b lang="en" translate="no">'),
        ('<html><p lang="en">', '<html><p lang="en">'),
    ],
)
def test_a_page_names_its_language(page: str, expected: str) -> None:
    assert with_language(page, "html", "de") == expected


def test_xliff_names_its_target_language() -> None:
    first = '<xliff version="1.2"><file source-language="en" original="x">'
    assert with_language(first, "xliff", "de") == first[:-1] + ' target-language="de">'
    named = '<xliff version="1.2"><file source-language="en" target-language="fr">'
    assert with_language(named, "xliff", "de") == named
    second = '<xliff version="2.0" srcLang="en"><file id="f">'
    assert with_language(second, "xliff", "de") == '<xliff version="2.0" srcLang="en" trgLang="de"><file id="f">'
    assert "lacks trgLang" in describe(second, "xliff")[0] and describe(named, "xliff") == []


def test_what_is_said_of_a_document() -> None:
    unit = "<trans-unit><source>a</source>{}</trans-unit>"
    units = "".join(map(unit.format, ["<target>b</target>", "", "<target/>", "<target>c</target>"]))
    assert describe(f"<xliff version='1.2'>{units}</xliff>", "xliff") == [
        "2 units have targets already: not translated"
    ]
    assert describe("a `<b>`\n\n```\n<i>\n```\n<u>x</u>\n", "markdown") == []
    assert "(in line 3: <i>)" in describe("a `<b>`\n\nb <i>\n", "markdown")[0]
    assert "2 tags are without a partner" in describe("<p>a</b>\n</i>", "html")[0]
