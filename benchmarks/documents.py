"""Documents made from sentences: is their translation well-formed and complete, and as good as that of plain lines?

    PYTHONPATH=src python benchmarks/documents.py --run RUN --src FILE --ref FILE [--name multi30k] [--documents 300]

Sentences of FILE are put into HTML, Markdown, XLIFF and SRT documents in turn, six in each; half of them get elements
around one to three of their words, nested at times, and a third an address, a placeholder, a price or a time at any
place. Reported: documents that are well-formed (expat for XLIFF and XHTML, balanced tags for all), tags and protected
parts that are in the translation, and BLEU of the sentences without these, beside the same sentences as plain lines.
Figures go to benchmarks/results/documents.json.
"""

from __future__ import annotations

import argparse
import html
import json
import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any
from xml.parsers import expat

from attnkit.formats.documents import PARSERS, DocumentFormat
from attnkit.formats.passages import Passage, Tag, render
from attnkit.metrics.bleu import corpus_bleu
from attnkit.tasks.translation.documents import DocumentTranslator
from attnkit.tasks.translation.translator import load_translator

RESULTS = Path(__file__).parent / "results" / "documents.json"
FORMATS: list[DocumentFormat] = ["html", "markdown", "xliff", "srt"]
ELEMENTS: dict[str, list[tuple[str, str]]] = {
    "html": [("<b>", "</b>"), ('<a href="http://x.org/?a=1&amp;b=2">', "</a>"), ("<em>", "</em>")],
    "markdown": [("**", "**"), ("[", "](http://x.org/a_b)"), ("*", "*")],
    "xliff": [('<g id="1">', "</g>"), ('<mrk mtype="x">', "</mrk>"), ('<g id="2">', "</g>")],
    "srt": [("<i>", "</i>"), ('<font color="#fff">', "</font>"), ("<b>", "</b>")],
}
PARTS = ["https://example.org/a-b?c=1", "{name}", "$3.50", "12:30", "me@example.org", "%s", "2024-05-01"]


def write_sentence(sentence: str, format: str, rng: random.Random, facts: Counter[str], parts: list[str]) -> str:
    """Return a sentence in a format, with elements and protected parts at random."""
    words = [html.escape(word, quote=False) if format in ("html", "xliff") else word for word in sentence.split()]
    if format == "markdown":
        words = [re.sub(r"([\\`*\[\]<_#])", r"\\\1", word) for word in words]
    if rng.random() < 0.5:
        elements = list(ELEMENTS[format])
        rng.shuffle(elements)
        first, last = sorted(rng.sample(range(len(words)), 2)) if len(words) > 1 else (0, 0)
        last = min(last, first + 2)
        words[first] = elements[0][0] + words[first]
        if last > first and rng.random() < 0.5:
            words[last] = elements[1][0] + words[last] + elements[1][1]
            facts["tags"] += 2
        words[last] += elements[0][1]
        facts["tags"] += 2
    if rng.random() < 1 / 3:
        parts.append(rng.choice(PARTS))
        words.insert(rng.randint(0, len(words)), parts[-1])
    return " ".join(words)


def make_document(written: list[str], format: str) -> str:
    """Return a document of sentences, one for each paragraph, item, unit or cue."""
    if format == "html":
        body = "\n".join(f"<li>{text}</li>" if k % 3 == 2 else f"<p>{text}</p>" for k, text in enumerate(written))
        return f"<html><head><meta charset='utf-8'/></head><body>\n{body}\n</body></html>\n"
    if format == "markdown":
        return "\n\n".join(["# ", "- ", "> ", "", "", ""][k % 6] + text for k, text in enumerate(written)) + "\n"
    if format == "srt":
        cues = (f"{k}\n00:00:{k:02},000 --> 00:00:{k:02},900\n{text}\n" for k, text in enumerate(written, 1))
        return "\n".join(cues)
    units = "".join(f'<trans-unit id="{k}"><source>{text}</source></trans-unit>\n' for k, text in enumerate(written))
    return f'<xliff version="1.2"><file original="x"><body>\n{units}</body></file></xliff>\n'


def examine(document: str, format: DocumentFormat) -> tuple[bool, Counter[str], list[str]]:
    """Return whether a document is well-formed, its inline tags, and the texts of its passages."""
    well_formed = True
    if format in ("html", "xliff"):
        try:
            expat.ParserCreate().Parse(document, True)
        except expat.ExpatError:
            well_formed = False
        if format == "xliff":
            document = re.sub(r"<source>.*?</source>", "", document).replace("target>", "source>")
    tags: Counter[str] = Counter()
    texts = []
    for piece in PARSERS[format](document):
        if isinstance(piece, Passage):
            tags.update(part.text for part in piece.parts if isinstance(part, Tag))
            texts.append(piece.text)
        else:
            tags.update(re.findall("|".join(re.escape(mark) for pair in ELEMENTS[format] for mark in pair), piece))
    return well_formed, tags, texts


def plain(text: str) -> str:
    """Return a text without protected parts."""
    for part in PARTS:
        text = re.sub(re.sub(r"(?<=\d)\\?[.:-](?=\d)", r"\\D", re.escape(part)), " ", text)
    return re.sub(r" (?=[.,])", "", " ".join(text.split()))


def main() -> None:
    """Translate the documents and the plain lines, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "src", "ref"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--name", default="multi30k")
    parser.add_argument("--documents", type=int, default=300)
    given = parser.parse_args()
    src, ref = (path.read_text().splitlines() for path in (given.src, given.ref))
    rng, began = random.Random(2), time.monotonic()
    translator = load_translator([given.run])
    translator.segmenter.policy = "lines"
    facts: Counter[str] = Counter()
    texts: list[str] = []
    used: list[int] = []
    for number in range(given.documents):
        format = FORMATS[number % len(FORMATS)]
        chosen = [rng.randrange(len(src)) for _ in range(6)]
        parts: list[str] = []
        document = make_document([write_sentence(src[i], format, rng, facts, parts) for i in chosen], format)
        _, wanted, _ = examine(document.replace("source>", "target>") if format == "xliff" else document, format)
        found = render(DocumentTranslator(translator).translate(PARSERS[format](document)))
        well_formed, tags, passages = examine(found, format)
        facts["documents"] += 1
        facts["well_formed"] += well_formed
        facts["tags_kept"] += sum((tags & wanted).values())
        facts["tags_wanted"] += sum(wanted.values())
        facts["parts"] += len(parts)
        kept = [re.sub(r"(?<=\d)\\?[.:-](?=\d)", r"\\D", re.escape(part)) for part in parts]
        facts["parts_kept"] += sum(
            re.search(pattern, html.unescape(found).replace("\\", "")) is not None for pattern in kept
        )
        facts["passages_in_place"] += len(passages) == len(chosen)
        texts += [plain(text) for text in passages]
        used += chosen
    lines = translator.translate([src[i] for i in used], num_hypotheses=1)
    references = [[ref[i] for i in used]]
    table: dict[str, Any] = {
        **facts,
        "bleu_documents": round(corpus_bleu(texts, references).score, 2),
        "bleu_lines": round(corpus_bleu(lines, references).score, 2),
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(table, indent=1))
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**results, given.name: table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
