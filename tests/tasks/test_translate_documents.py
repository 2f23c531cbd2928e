"""Translation of documents: tags stay balanced and complete, and protected parts are kept, whatever the model says."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any
from xml.parsers import expat

import pytest

from attnkit.cli.main import main
from attnkit.engine.seq2seq import LocalSearch
from attnkit.formats.documents import PARSERS, parse_line
from attnkit.formats.html import MARKUP
from attnkit.formats.passages import Passage, Tag, render
from attnkit.tasks.translation.documents import DocumentTranslator
from attnkit.tasks.translation.placement import find_words, place_tags, take_tags
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
    "2 dogs, 15 cats, 5 km, 30 % off": ["15", "5 km", "30 %"],
    "100%sure": ["100%"],
    "no 7 of them": [],
}


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
IMAGE, NOTE = Tag("<img/>", "point"), Tag("[1]", "point")


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


PAGE = """<html><head><title>1 2 3</title></head><body>
<p>1 <b>2 <i>3</i></b> 4 5. See <a href="http://x.y/?a=1&amp;b">6 7</a> at 12:30 {name}!</p>
<p>https://example.com/9 <img src="a.png"/> 8 9 0 &amp; 1 <code>x = 1</code></p><p>https://example.com/only</p>
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
    page = '<meta name="description" content="1 2"><p title="3 4">5 <img src="a.png" alt="6 7"> 8 9</p>'
    found = render(documents.translate(PARSERS["html"](page)))
    segments = "1 2", "3 4", "6 7"
    first, second, third = documents._translator.translate(segments)
    assert f'content="{first}"' in found and f'<p title="{second}">' in found
    assert f'<img src="a.png" alt="{third}">' in found
    assert documents.counts.n_passages == 4


def test_sentences_of_a_passage_are_translated_alone(documents: DocumentTranslator) -> None:
    text = render(documents.translate(parse_line("1 2 3! <b>4 5 6?</b>  7 8 9")))
    plain = re.sub(r"<.*?>", "", text)
    documents._translator.segmenter.policy = "lines"
    first, second, third = documents._translator.translate(["1 2 3!", "4 5 6?", "7 8 9"])
    assert plain == f"{first} {second} {third}"
    if documents._has_attention:
        assert f"<b>{second}</b>" in text


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
    assert call(monkeypatch, "translate", trained, "-i", page, "--format", "srt") == 3
    assert "no times" in capsys.readouterr().err
    assert call(monkeypatch, "translate", trained, "-i", page) == 0
    assert "--format html keeps its markup" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--json",), ("--num-hypotheses", "2"), ("--resume",), ("--return-scores",)])
def test_options_that_documents_do_not_have(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: Any
) -> None:
    (tmp_path / "page.md").write_text("1 2\n")
    command = ("translate", trained, "-i", tmp_path / "page.md", "-o", tmp_path / "out")
    assert call(monkeypatch, *command, "--format", "markdown", *option) == 2
    assert f"{option[0]} cannot be combined with --format markdown" in capsys.readouterr().err
    assert call(monkeypatch, *command, "--protect", *option) == 2
    assert not (tmp_path / "out").exists()


def test_protected_lines_stay_lines(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["1 <b>2</b> 3", "", "see http://x.y/z at $3.50", "  4 5  ", "a\u2028b {x}", "<br/>"]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    assert call(monkeypatch, "translate", trained, "-i", tmp_path / "in", "-o", tmp_path / "out", "--protect") == 0
    found = (tmp_path / "out").read_text().split("\n")
    assert len(found) == len(lines) + 1 and found[1] == "" and found[5] == "<br/>"
    assert "<b>" in found[0] and "</b>" in found[0]
    assert "http://x.y/z" in found[2] and re.search(r"3\D50", found[2]) and "{x}" in found[4]


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
    pieces += ["<b>", "</b>", "<i>", "</i>", "<img/>"]
    stub = Stub(documents._translator, 6)
    for _ in range(400):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 30)))
        source = PARSERS[format](text)
        found = render(DocumentTranslator(stub).translate(source))  # type: ignore[arg-type]
        assert Counter(m[0] for m in MARKUP.finditer(found)) == Counter(m[0] for m in MARKUP.finditer(text)), text
        plain = re.sub(r"<.*?>", " ", found)  # no tag may be inside a part
        passages = [piece for piece in source if isinstance(piece, Passage)] if format == "html" else []
        for passage in passages:
            for part in find_protected(take_tags(passage.parts).text):
                assert is_kept(part, plain) or part.text not in re.sub(r"<.*?>", " ", text), text
