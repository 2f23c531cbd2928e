"""Translation of documents: tags stay balanced and complete, and protected parts are kept, whatever the model says."""

from __future__ import annotations

import html
import json
import random
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.parsers import expat

import pytest

from attnkit.cli.main import main
from attnkit.data.loader import Batching
from attnkit.engine.seq2seq import LocalSearch
from attnkit.formats.documents import PARSERS, parse_line
from attnkit.formats.html import MARKUP
from attnkit.formats.passages import Passage, Tag, render
from attnkit.tasks.translation.documents import DocumentTranslator
from attnkit.tasks.translation.placement import find_words, place_tags, take_tags
from attnkit.tasks.translation.signs import DocumentCounts, in_order
from attnkit.tasks.translation.stream import TranslateRequest, load_translator, translate_document, translate_stream
from attnkit.tasks.translation.translated_line import Output, TranslatedLine
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.text.protected import find_protected, is_kept

PROTECTED = {
    "see https://example.com/a?b=1, and www.x.org/y.": ["https://example.com/a?b=1", "www.x.org/y"],
    "mail a.b+c@d-e.org!": ["a.b+c@d-e.org"],
    "hello {name}, {{ user }} %s %(n)d %1$s ${HOME} $PATH %%x%%": (
        ["{name}", "{{ user }}", "%s", "%(n)d", "%1$s", "${HOME}", "$PATH", "%%x%%"]
    ),
    "it costs $3.50 or 4,20 € at 12:30 on 2024-05-01": ["$3.50", "4,20 €", "12:30", "2024-05-01"],
    "2 dogs, 15 cats, 5 km, 30 % off at -5 °C": ["2", "15", "5 km", "30 %", "-5 °C"],
    "100%sure": ["100%"],
    "no 7 of them, 3-year-old boys, the 5th, B2B": ["7"],
    "有5只狗和15只猫": ["5", "15"],
    "5 < 6 & 7 dogs": ["5 < 6", "7"],
    "Set x = f(y) + 1 in `main`, then total = sum(a).": ["x = f(y) + 1", "`main`", "total = sum(a)"],
    "foo_bar() and foo_bar, os.path.join(a, b); open('a').read()!": (
        ["foo_bar()", "foo_bar", "os.path.join(a, b)", "open('a').read()"]
    ),
    "torch.nn.Linear, config.yaml or README.md.": ["torch.nn.Linear", "config.yaml", "README.md"],
    "/usr/bin/env, ~/x, ./run.sh, C:\\a\\b.txt (src/a/main.py) docs/guides/.": (
        ["/usr/bin/env", "~/x", "./run.sh", "C:\\a\\b.txt", "src/a/main.py", "docs/guides/"]
    ),
    "Add --max-steps=10, --json or -o out; lr=0.1, n = 20 in v1.2.0": (
        ["--max-steps=10", "--json", "-o", "lr=0.1", "n = 20", "v1.2.0"]
    ),
}
PROSE = [
    "The dog(s), a(n) apple and Mitarbeiter(innen), né(e) in Tokyo(Japan).",
    "E.g. this, i.e. that, a.m., U.S., z.B., Ph.D. The end.Start again. Hm...yes",
    "AC/DC, TCP/IP, his/her/their, and/or, n/a, w/o, left/right.",
    "He left--and came -- back - today. Vitamin B - C, T-shirt, -ing",
    "``quoted'' and ``another'' of `single' and `two' words, rock 'n' roll",
    "Freedom = work, iPhone, McDonald's, AT&T, R&D :-) ;) =) ^_^ *bold* _so_",
]


@pytest.mark.parametrize("text", PROSE)
def test_prose_has_no_code(text: str) -> None:
    assert find_protected(text) == []


@pytest.mark.parametrize(
    "text", ["f(x)+f(x)=", "x = ", "f(", "f(a=((", "`a ", "ab/", "a.b", "a_", "1 + ", "a.b(c)", "f(a, "]
)
def test_code_is_found_in_linear_time(text: str) -> None:
    began = time.process_time()
    find_protected(text * 10_000)
    assert time.process_time() - began < 3  # 0.3 s at most; quadratic time would be minutes


@pytest.mark.parametrize("text", PROTECTED)
def test_parts_that_are_protected(text: str) -> None:
    assert [part.text for part in find_protected(text)] == PROTECTED[text]


@pytest.mark.parametrize(
    ("source", "translation", "kept"),
    [
        ("$3.50", "3,50 $", True),
        ("12:30", "um 12.30 Uhr", True),
        ("1,000,000", "1.000.000", True),
        ("15", "150", False),
        ("15", "fünfzehn", False),
        ("http://x.y", "http://x.y", True),
        ("{name}", "{Name}", False),
        ("http://x.y", "http://x.yHund", False),
        ("http://x.y", "从http://x.y来", True),
        ("-5 °C", "5 °C", False),
        ("-5 °C", "−5°C", True),
        ("foo_bar", "foo_barbar", False),
    ],
)
def test_numbers_are_kept_with_other_marks(source: str, translation: str, kept: bool) -> None:
    [part] = find_protected(source)
    assert is_kept(part, translation) == kept


def tags(n: str) -> tuple[Tag, Tag]:
    return Tag(f"<{n}>", "open", n), Tag(f"</{n}>", "close", n)


B, NOT_B = tags("b")
ITALIC, NOT_I = tags("i")
STAR, NOT_STAR = (Tag("*", kind, "*", needs_text=True) for kind in ("open", "close"))
IMAGE, NOTE, PRICE = Tag("<img/>", "point"), Tag("[1]", "point"), Tag("$5", "point")


@pytest.mark.parametrize(
    ("parts", "text", "links", "placed"),
    [
        (["A ", B, "red", NOT_B, " dog"], "Un chien rouge", [0, 2, 1], "Un chien <b>rouge</b>"),
        (
            ["A ", B, "very ", ITALIC, "red", NOT_I, NOT_B, " dog"],
            "rot sehr Hund",
            [2, 1, 3],
            "<b><i>rot</i> sehr</b> Hund",
        ),
        ([B, "one", NOT_B, " ", ITALIC, "two", NOT_I], "zwei eins", [1, 0], "<i>zwei</i> <b>eins</b>"),
        ([B, "a b", NOT_B, " ", ITALIC, "c d", NOT_I], "A C B D", [0, 2, 1, 3], "<b>A C</b> <i>B D</i>"),
        (["See ", IMAGE, " the dog", NOTE, "."], "Voir le chien.", [0, 1, 2, 3], "Voir <img/> le chien[1]."),
        (["see", IMAGE], "", [], "<img/>"),
        (["A ", IMAGE, IMAGE, " b"], "X y", [0, 1], "X <img/><img/> y"),
        (["A ", IMAGE, " ", IMAGE, " b"], "", [], "<img/> <img/>"),
        (["a ", B, "x", NOT_B], "y", [0], "<b>y</b>"),
        (["a ", B, "x", NOT_B, ITALIC, "z", NOT_I], "y", [0], "<b></b><i>y</i>"),
        (["a ", STAR, "x", NOT_STAR, ITALIC, "z", NOT_I], "y", [0], "<i>*y*</i>"),
        (["a ", B, "red dog", NOT_B, " runs"], "rouge, chien court", [1, 1, 2, 3], "<b>rouge, chien</b> court"),
        (["a ", B, "dog", NOT_B, " runs"], "un , chien ; court", [0, 1, 1, 1, 2], "un , <b>chien</b> ; court"),
        (["a ", B, "dog", NOT_B, " runs"], "chien, court", [0, 1, 2], "<b>chien</b>, court"),
        (["costs ", PRICE, "."], "Kostet Geld.", [0, 1, 1], "Kostet $5 Geld."),
        (["It ", PRICE, ", sir"], "Es einem Herrn", [0, 2, 2], "Es $5 einem Herrn"),
        (["It ", PRICE, ", sir"], "Es, mein", [0, 1, 2], "Es $5, mein"),
        ([PRICE, ", sir"], "mein Herr", [1, 1], "$5 mein Herr"),
        (["Sir: ", PRICE, "!"], "Preis (Herr)!", [0, 0, 0, 0, 2], "Preis (Herr) $5!"),
        (["Sir (", PRICE, ") a"], "Herr (ein)", [0, 1, 3, 2], "Herr (ein $5)"),
        (["a ", PRICE, " b"], "猫狗", [0, 1], "猫$5狗"),
        (["猫", PRICE, "狗"], "cat dog", [0, 1], "cat $5 dog"),
        (["a ", PRICE, " b"], "x – y", [0, 1, 1], "x $5 – y"),
        (["a ", PRICE, " ", ITALIC, "b", NOT_I], "x y", [0, 1], "x $5 <i>y</i>"),
        (["the ", PRICE, "-", "mark"], "die Note", [0, 2], "die $5 Note"),
        (["the dog", NOTE, ", sir"], "Hund Herr", [1, 2], "Hund[1] Herr"),
        (["一只", B, "红", NOT_B, "狗"], "a red dog", [0, 2, 3], "a <b>red</b> dog"),
    ],
)
def test_tags_go_around_aligned_words(parts: list[str | Tag], text: str, links: list[int], placed: str) -> None:
    found = place_tags(take_tags(parts), text, links)
    assert "".join(part.text if isinstance(part, Tag) else part for part in found) == placed


def draw_parts(rng: random.Random) -> list[str | Tag]:
    parts: list[str | Tag] = []
    opened: list[Tag] = []
    for number in range(rng.randint(1, 14)):
        kind = rng.random()
        if kind < 0.5:
            parts.append(rng.choice(["a", "bb", " c", " ", "d ", ". ", " e f "]))
        elif kind < 0.65:
            begin, end = tags(f"t{number}")
            parts.append(begin)
            opened.append(end)
        elif kind < 0.85 and opened:
            parts.append(opened.pop())
        else:
            parts.append(Tag(f"<p{number}/>", "point"))
    return [*parts, *reversed(opened)]


def test_any_alignment_keeps_all_tags_balanced_and_all_words() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        parts, text = draw_parts(rng), " ".join(rng.choices(["x", "y", "z.", "w,"], k=rng.randint(0, 6)))
        marked = take_tags(parts)
        links = [rng.randrange(max(1, len(marked.words))) for _ in find_words(text)]
        found = place_tags(marked, text, links)
        assert Counter(p.text for p in found if isinstance(p, Tag)) == Counter(
            p.text for p in parts if isinstance(p, Tag)
        )
        assert "".join("".join(p for p in found if isinstance(p, str)).split()) == "".join(text.split())
        stack = []
        for part in found:
            if isinstance(part, Tag) and part.kind == "open":
                stack.append(part.name)
            elif isinstance(part, Tag) and part.kind == "close":
                assert stack.pop() == part.name


@pytest.fixture(params=["transformer", "rnn-without-attention"])
def documents(request: pytest.FixtureRequest, workshop: Any, trained: Path) -> DocumentTranslator:
    kind, _, without = request.param.partition("-")
    run = workshop.random_run(trained, kind, **({"model__alignment": "none"} if without else {}))
    return DocumentTranslator(TranslationPipeline([run], LocalSearch([run.model], run.device)))


PAGE = """<html><head><title>A B C</title></head><body>
<p>A <b>B <i>C</i></b> D E. See <a href="http://x.y/?a=1&amp;b">F G</a> at 12:30 {name}!</p>
<p>https://example.com/9 <img src="a.png"/> H I &amp; J <code>x = 1</code></p><p>https://example.com/only</p>
</body></html>"""


def test_a_page_keeps_its_tags_and_protected_parts(documents: DocumentTranslator) -> None:
    found = render(documents.translate(PARSERS["html"](PAGE)))
    assert Counter(m[0] for m in MARKUP.finditer(found)) == Counter(m[0] for m in MARKUP.finditer(PAGE))
    expat.ParserCreate().Parse(found, True)  # well-formed
    for text in ("http://x.y/?a=1&amp;b", "https://example.com/9", "12:30", "{name}", "<code>x = 1</code>"):
        assert text in found
    assert "<p>https://example.com/only</p>" in found
    counts = documents.counts
    assert (counts.n_passages, counts.n_protected, counts.n_tags) == (4, 4, 7) and counts.n_restored


def test_values_of_tags_are_translated_with_the_rest(documents: DocumentTranslator) -> None:
    page = '<meta name="description" content="A B"><p title="C D">E <img src="a.png" alt="F G"> H I</p>'
    found = render(documents.translate(PARSERS["html"](page)))
    segments = "A B", "C D", "F G"
    first, second, third = documents._translator.translate(segments)
    assert f'content="{first}"' in found and f'<p title="{second}">' in found
    assert f'<img src="a.png" alt="{third}">' in found
    assert documents.counts.n_passages == 4


def test_sentences_of_a_passage_are_translated_alone(documents: DocumentTranslator) -> None:
    text = render(documents.translate(parse_line("A B C! <b>D E F?</b>  G H I")))
    plain = re.sub(r"<.*?>", "", text)
    documents._translator.segmenter.policy = "lines"
    first, second, third = documents._translator.translate(["A B C!", "D E F?", "G H I"])
    assert plain == f"{first} {second} {third}"
    if documents._has_attention:
        assert f"<b>{second}</b>" in text


def test_escaped_tags_go_with_their_words_and_stay_balanced(documents: DocumentTranslator) -> None:
    source = "A &lt;b&gt;B &lt;i&gt;C&lt;/i&gt;&lt;/b&gt; D"
    page = f"<xliff><trans-unit><source>{source}</source></trans-unit></xliff>"
    found = render(documents.translate(PARSERS["xliff"](page)))
    target = found[found.index("<target>") + 8 : found.index("</target>")]
    assert sorted(re.findall("&lt;.*?&gt;", target)) == sorted(re.findall("&lt;.*?&gt;", source))
    expat.ParserCreate().Parse(f"<x>{html.unescape(target)}</x>", True)  # well-formed, too, as HTML
    plain = html.unescape(re.sub("&lt;.*?&gt;", "", target))
    assert plain == documents._translator.translate(["A B C D"])[0]


def call(monkeypatch: pytest.MonkeyPatch, *command: object) -> int:
    monkeypatch.setattr("sys.argv", ["attnkit", *map(str, command)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_command_writes_documents(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, out = tmp_path / "page.html", tmp_path / "out.html"
    page.write_text(PAGE)
    assert call(monkeypatch, "translate", trained, "-i", page, "-o", out, "--format", "html") == 0
    assert out.read_text().startswith("<html><head><title>") and 'href="http://x.y/?a=1&amp;b"' in out.read_text()
    assert "4 passages translated, 7 tags placed, 4 protected parts kept" in " ".join(capsys.readouterr().err.split())
    page.write_text('<html lang="en"><p>A <b>B C</p></html>')
    assert call(monkeypatch, "translate", trained, "-i", page, "-o", out, "--format", "html", "--tgt-lang", "de") == 0
    assert '<html lang="de">' in out.read_text() and out.read_text().count("<b>") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: 1 tag is without a partner, so the result is not well-formed (in line 1: <b>)" in said
    assert call(monkeypatch, "translate", trained, "-i", page, "--format", "srt") == 3
    assert "no times" in capsys.readouterr().err
    assert call(monkeypatch, "translate", trained, "-i", page) == 0
    assert "--format html keeps its markup" in capsys.readouterr().err


def test_json_tells_the_signs_and_the_place_of_passages(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, out = tmp_path / "page.html", tmp_path / "out.html"
    page.write_text(PAGE.replace(" D E.", " D dog.").replace('src="a.png"', 'alt="3 4"'))
    command = ("translate", trained, "-i", page, "--format", "html", "--split", "sentences")
    assert call(monkeypatch, *command, "-o", out, "--json") == 0
    printed = capsys.readouterr()
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [(one["file"], one["line"], one["passage"]) for one in found] == [
        (str(page), line, k) for k, line in enumerate([1, 2, 3, 3, 3], 1)
    ]
    assert found[1]["source"] == (
        'A <b>B <i>C</i></b> D dog. See <a href="http://x.y/?a=1&amp;b">F G</a> at 12:30 {name}!'
    )
    document = out.read_text()
    assert all(one["translations"][0]["text"] in document for one in found)
    sentences = [sentence for one in found for sentence in one["sentences"]]
    assert [one["source"] for one in sentences[1:3]] == ["A B C D dog.", "See F G at 12:30 {name}!"]
    for one in found:
        assert one["signs"] == in_order(sign for sentence in one["sentences"] for sign in sentence["signs"])
        for name in ("score", "log_prob"):
            assert one["translations"][0][name] == sum(sentence[name] for sentence in one["sentences"])
    n_flagged, n_restored = (sum(bool(one[name]) for one in sentences) for name in ("signs", "restored"))
    said = " ".join(printed.err.split())
    assert n_restored and f"({sum(len(one['restored']) for one in sentences)} put back)" in said
    assert f"{n_flagged} of {len(sentences)} sentences may be wrong" in said and "(--json flags each)" in said
    assert "lost" not in {sign for one in sentences for sign in one["signs"]}  # they are put back
    assert call(monkeypatch, *command, "--json") == 0
    assert capsys.readouterr().out == printed.out  # and no document
    assert call(monkeypatch, *command) == 0
    assert capsys.readouterr().out == document


def test_json_of_protected_lines_is_a_line_each(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["1 <b>2</b> 3. See {x}!", "", "<br/>", "4 5"]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    command = ("translate", trained, "-i", tmp_path / "in", "--protect", "--split", "sentences")
    assert call(monkeypatch, *command) == 0
    texts = capsys.readouterr().out.splitlines()
    assert call(monkeypatch, *command, "--json", "--batch-size", "1") == 0  # lines are counted over windows
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["line"] for one in found] == [1, 2, 3, 4]
    assert [(one["source"], one["translations"][0]["text"]) for one in found] == list(zip(lines, texts, strict=True))
    assert [len(one["sentences"]) for one in found] == [2, 0, 0, 1] and found[0]["sentences"][1]["restored"] == ["{x}"]


@pytest.mark.parametrize(
    "option", [("--num-hypotheses", "2"), ("--resume",), ("--return-scores",), ("--return-confidence",)]
)
def test_options_that_documents_do_not_have(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: Any
) -> None:
    (tmp_path / "page.md").write_text("1 2\n")
    command = ("translate", trained, "-i", tmp_path / "page.md", "-o", tmp_path / "out")
    assert call(monkeypatch, *command, "--format", "markdown", *option) == 2
    assert f"{option[0]} cannot be combined with --format markdown" in capsys.readouterr().err
    if option != ("--resume",):  # lines have parts
        assert call(monkeypatch, *command, "--protect", *option) == 2
    assert not (tmp_path / "out").exists()


def test_protected_lines_stay_lines(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["1 <b>2</b> 3", "", "see http://x.y/z at $3.50", "  4 5  ", "a\u2028b {x}", "<br/>", "a <i>b"]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    assert call(monkeypatch, "translate", trained, "-i", tmp_path / "in", "-o", tmp_path / "out", "--protect") == 0
    found = (tmp_path / "out").read_text().split("\n")
    assert len(found) == len(lines) + 1 and found[1] == "" and found[5] == "<br/>"
    assert "<b>" in found[0] and "</b>" in found[0]
    assert "1 line has tags without a partner" in capsys.readouterr().err  # the last
    assert "http://x.y/z" in found[2] and re.search(r"3\D50", found[2]) and "{x}" in found[4]


def test_progress_never_falls(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of windows of lines, windows of passages, tagged and plain ones, values of tags, and lost parts."""
    monkeypatch.setattr("attnkit.tasks.translation.documents._PASSAGES", 5)
    lines = ["1 <b>2</b> 3. 4 5.", "", "see {x} at $3.50", "<br/>", '6 <i title="7 8">9</i>', "1 2 3. 4. 5."] * 4
    source = tmp_path / "in"
    source.write_text("".join(f"{line}\n" for line in lines))
    counts: list[int] = []
    request = TranslateRequest([trained], source, device="cpu", threads=1, protect=True, batching=Batching(2, window=9))
    assert sum(len(group) for _, group in translate_stream(request, print, counts.append)) == len(lines)
    assert counts == sorted(counts) and (counts[0], counts[-1]) == (0, len(lines))
    assert {*counts} - {0, 9, 18, 24}  # within a window
    passages: list[tuple[int, int]] = []
    page, source_text = replace(request, format="html", protect=False), "".join(f"<p>{line}</p>" for line in lines)
    opened = load_translator(page, print)
    counts_of_all = DocumentCounts(n_passages=7)  # of documents before this one
    translate_document(opened, page, source_text, lambda n, n_all: passages.append((n, n_all)), counts_of_all)
    assert passages == sorted(passages) and passages[-1] == (16, 16) and len({*passages}) > 16 // 5 + 2


def test_a_part_that_comes_twice_has_to_come_twice(documents: DocumentTranslator) -> None:
    found = render(documents.translate(parse_line("1 {x} 2 {x} 3 http://a.b/c 4 http://a.b/c 5 10:30 6 10:30")))
    assert (found.count("{x}"), found.count("http://a.b/c"), found.count("10:30")) == (2, 2, 2)


def test_deep_and_long_passages_take_linear_time(documents: DocumentTranslator) -> None:
    deep = "1 " + "<b>" * 3000 + "2" + "</b>" * 3000 + " 3"
    assert render(documents.translate(PARSERS["html"](deep))).count("<b>") == 3000
    many = "".join(f"{i % 10} <i>{i % 7}</i> <img/>" for i in range(1500))
    began = time.process_time()
    marked = take_tags(parse_line(many)[1].parts)  # type: ignore[union-attr]
    found = place_tags(marked, marked.text, list(range(len(marked.words))))
    assert sum(isinstance(part, Tag) for part in found) == 4499 and time.process_time() - began < 5


class Stub:
    """A translator that shuffles words, drops some and repeats others."""

    def __init__(self, translator: TranslationPipeline, seed: int) -> None:
        self._translator, self._rng = translator, random.Random(seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._translator, name)

    def stream(self, lines: list[str], *_: object, **__: object) -> Any:
        for line in lines:
            words = line.split()
            text = " ".join(self._rng.choices(words or ["x"], k=self._rng.randint(0, len(words) + 1)))
            yield TranslatedLine(
                line, [[]], [Output(text, 0.0, 0.0, [[]], True, None, self.tgt_tokenizer)], self.src_tokenizer
            )


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_whatever_is_translated_nothing_is_lost(documents: DocumentTranslator, format: Any) -> None:
    rng = random.Random(5)
    pieces = ["dog", "中文", "a.b", "x_y", " ", " ", ". ", " http://a.b/c?d ", " {name} ", " $3.50 ", " 12:30 "]
    pieces += ["<b>", "</b>", "<i>", "</i>", "<img/>", "&lt;b&gt;", "&lt;/b&gt;"]
    stub = Stub(documents._translator, 6)
    for _ in range(400):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 30)))
        source = PARSERS[format](text)
        found = render(DocumentTranslator(stub).translate(source))  # type: ignore[arg-type]
        assert Counter(m[0] for m in MARKUP.finditer(found)) == Counter(m[0] for m in MARKUP.finditer(text)), text
        assert (found.count("&lt;b&gt;"), found.count("&lt;/b&gt;")) == (
            text.count("&lt;b&gt;"),
            text.count("&lt;/b&gt;"),
        )
        plain = re.sub(r"<.*?>", " ", found)  # no tag may be inside a part
        passages = [piece for piece in source if isinstance(piece, Passage)] if format == "html" else []
        for passage in passages:
            for part in find_protected(take_tags(passage.parts).text):
                assert is_kept(part, plain) or part.text not in re.sub(r"<.*?>", " ", text), text
