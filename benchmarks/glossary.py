"""Does `translate --glossary` produce its terms, and what does that do to the translations?

    PYTHONPATH=src python benchmarks/glossary.py --run RUN --train SRC TGT --test SRC TGT [--terms 200] [--beam-size 5]

The glossary is drawn from the training text: source words of at least four letters and their translations, as aligned
by IBM Model 1 (`attnkit align`), among words that the test text has too. Two are tried: `forms` has every translation
of a word with a probability of at least .1, `one` the most probable one alone, as a translator would write it. Printed
and added to benchmarks/results/glossary.json under the name of the run: the share of terms in the translations without
the glossary and with it; BLEU of the lines whose reference has all of their terms, of those whose reference lacks one
(the glossary asks for something else there), and of all others; and seconds. A run trained with `data.annotate_terms`
is tried both ways: `with` shows it the terms, `forced` has hard constraints alone; `or inflected` counts other forms.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from attnkit.metrics.bleu import corpus_bleu
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.glossary import Glossary
from attnkit.text.word_boundaries import count_phrases
from attnkit.text.word_forms import count_inflected

RESULTS = Path(__file__).parent / "results" / "glossary.json"
WORD = re.compile(r"\w[\w-]*")
LEAST = 0.1  #: probability of a form


def align(train: list[Path]) -> dict[str, dict[str, float]]:
    """Return translations of each lower-case source word and their probabilities."""
    with tempfile.TemporaryDirectory() as folder:
        texts = []
        for side, path in enumerate(train):
            lines = path.read_text().splitlines()
            words = (" ".join(WORD.findall(line.lower() if side == 0 else line)) for line in lines)
            texts.append(Path(folder) / f"words.{side}")
            texts[-1].write_text("".join(f"{line}\n" for line in words))
        lexicon = Path(folder) / "words.tsv"
        command = [sys.executable, "-m", "attnkit", "align", *texts, "-o", lexicon, "--summary", "--quiet"]
        subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
        found: dict[str, dict[str, float]] = defaultdict(dict)
        for line in lexicon.read_text().splitlines():
            fields = line.split("\t")
            if not line.startswith("#") and len(fields) == 3:
                found[fields[0]][fields[1]] = float(fields[2])
    return found


def draw_terms(lexicon: dict[str, dict[str, float]], test: list[str], n_terms: int) -> dict[str, list[str]]:
    """Return forms of drawn source words of the test text, most probable first."""
    uses = {word for line in test for word in WORD.findall(line.lower())}
    usable = {}
    for word, targets in sorted(lexicon.items()):
        forms = [form for form, p in sorted(targets.items(), key=lambda pair: -pair[1]) if p >= LEAST and len(form) > 2]
        if word in uses and len(word) >= 4 and forms and targets[forms[0]] >= 0.3:
            usable[word] = forms
    return {word: usable[word] for word in random.Random(1).sample(sorted(usable), min(n_terms, len(usable)))}


def share_of_terms(glossary: Glossary, sources: list[str], outputs: list[str], *, inflected: bool = False) -> float:
    """Return the share of the terms of the sources that the outputs have, in any form if ``inflected``."""
    n_terms = n_used = 0
    for source, output in zip(sources, outputs, strict=True):
        uses: dict[tuple[str, ...], int] = defaultdict(int)
        for term in glossary.find(source):
            uses[term.entry.targets] += 1
        for texts, n in uses.items():
            forms = (*texts, *(text[:1].upper() + text[1:] for text in texts))
            n_found = min(n, count_phrases(output, forms))
            if inflected:
                n_found = max(n_found, min(n, count_inflected(output, texts)))
            n_terms, n_used = n_terms + n, n_used + n_found
    return n_used / max(1, n_terms)


def main() -> None:
    """Translate with and without the glossaries, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--name", help="of the run, in the results")
    parser.add_argument("--train", type=Path, nargs=2, required=True)
    parser.add_argument("--test", type=Path, nargs=2, required=True)
    parser.add_argument("--terms", type=int, default=200)
    parser.add_argument("--beam-size", type=int, default=5)
    given = parser.parse_args()
    sources, references = (path.read_text().splitlines() for path in given.test)
    forms = draw_terms(align(given.train), sources, given.terms)
    translator = load_translator([given.run])
    ways = ["without", "with"] + ["forced"] * translator.inline.has_annotations
    facts: dict[str, Any] = {"terms": len(forms), "beam_size": given.beam_size, "lines": len(sources)}
    for name, terms in {"forms": forms, "one": {word: own[:1] for word, own in forms.items()}}.items():
        glossary = Glossary(terms)
        outputs, seconds = {}, {}
        for way in ways:
            translator.inline.has_annotations = way == "with" and "forced" in ways
            begin = time.perf_counter()
            translator.set_glossary(None if way == "without" else glossary, print)
            outputs[way] = translator.translate(sources, beam_size=given.beam_size)
            seconds[way] = round(time.perf_counter() - begin, 1)
        has_terms = [bool(glossary.find(line)) for line in sources]
        agrees = [share_of_terms(glossary, [a], [b]) == 1 for a, b in zip(sources, references, strict=True)]
        kinds = {
            "lines whose reference has their terms": [i for i, has in enumerate(has_terms) if has and agrees[i]],
            "lines whose reference lacks a term": [i for i, has in enumerate(has_terms) if has and not agrees[i]],
            "other lines": [i for i, has in enumerate(has_terms) if not has],
        }
        scores: dict[str, dict[str, float]] = {}
        for kind, chosen in kinds.items():
            scores[kind] = {"lines": len(chosen)} | {
                way: round(corpus_bleu([texts[i] for i in chosen], [[references[i] for i in chosen]]).score, 2)
                for way, texts in outputs.items()
            }
        hits = {way: round(100 * share_of_terms(glossary, sources, texts), 2) for way, texts in outputs.items()}
        facts[name] = {"hits in %": hits, "BLEU": scores, "seconds": seconds}
        if "forced" in ways:
            facts[name]["hits in %, or inflected"] = {
                way: round(100 * share_of_terms(glossary, sources, texts, inflected=True), 2)
                for way, texts in outputs.items()
            }
        print(name, json.dumps(facts[name], ensure_ascii=False))
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(
        json.dumps({**results, given.name or given.run.name: facts}, indent=1, ensure_ascii=False) + "\n"
    )


if __name__ == "__main__":
    main()
