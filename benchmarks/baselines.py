"""What simple methods reach where a pretrained encoder is fine-tuned: sentiment, named entities, answers to questions.

    PYTHONPATH=src python benchmarks/baselines.py --data DIR

DIR holds sentence-polarity, wnut17 and xquad. Every choice (features, regularization, width of a window) is made by the
development set, the figures are those of the test set:

- sentence-polarity: logistic regression over a bag of words or of words and pairs, to its minimum, in numpy;
- wnut17: each word gets the tag that it has most often in the training set, a word not seen there gets O;
- xquad: split by paragraph; an answer is the span of words around which, in a sliding window, most of the question's
  words stand, each weighed by its rarity (after Richardson et al. 2013, section 5, and Rajpurkar et al. 2016, 5.1).

Nothing is drawn at random: there are no seeds. Some 15 seconds in all; figures go to benchmarks/results/baselines.json.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from peers import Message, machine, save_result
from squad_parts import split_paragraphs

from attnkit.metrics.answers import answer_scores
from attnkit.metrics.labels import confusion, label_scores, span_scores
from attnkit.text.conll import read_sentences
from attnkit.text.documents import LabeledTable, LabeledText, space_words
from attnkit.text.squad import Paragraph, Question, read_squad

RESULT = Path(__file__).parent / "results" / "baselines.json"
XQUAD_SHARES, XQUAD_SEED = (0.7, 0.1, 0.2), 1
"""Of the paragraphs for training, development and test, by ``split_paragraphs``."""
Floats = npt.NDArray[np.float64]


class Bags(NamedTuple):
    """Examples as sets of features, of which V are known: a sparse matrix of ones (n, V)."""

    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    shape: tuple[int, int]

    def times(self, weights: Floats) -> Floats:
        """Return the sum of weights of each example's features (n,)."""
        return np.bincount(self.rows, weights[self.columns], self.shape[0])

    def transposed_times(self, values: Floats) -> Floats:
        """Return the sum of values over the examples that have each feature (V,)."""
        return np.bincount(self.columns, values[self.rows], self.shape[1])


def features_of(text: str, pairs: bool) -> set[str]:
    """Return a text's words in lower case, pairs of neighbours if asked for, and one feature that all texts have."""
    words = space_words(text.lower()).split()
    return {"", *words, *(f"{a} {b}" for a, b in pairwise(words) if pairs)}


def make_bags(texts: Iterable[LabeledText], known: dict[str, int], pairs: bool, *, learn: bool) -> Bags:
    """Return the features of texts; ``learn`` adds those that are not known yet."""
    rows, columns, n = [], [], 0
    for text in texts:
        for feature in sorted(features_of(text.text, pairs)):
            column = known.setdefault(feature, len(known)) if learn else known.get(feature)
            if column is not None:
                rows.append(n)
                columns.append(column)
        n += 1
    return Bags(np.array(rows), np.array(columns), (n, len(known)))


def fit(bags: Bags, signs: Floats, penalty: float) -> Floats:
    """Return the weights (V,) that minimize the logistic loss and half the penalty times their squares.

    Newton's method, each step by conjugate gradients: the loss is convex, so this is the one minimum.
    """
    weights = np.zeros(bags.shape[1])
    for _ in range(50):
        margins = signs * bags.times(weights)
        wrong = 1 / (1 + np.exp(np.clip(margins, -500, 500)))
        gradient = penalty * weights - bags.transposed_times(signs * wrong)
        if np.linalg.norm(gradient) < 1e-6 * len(signs):
            break
        curvature = wrong * (1 - wrong)
        step = _solve(lambda v, c=curvature: penalty * v + bags.transposed_times(c * bags.times(v)), gradient)
        weights = weights - step
    return weights


def _solve(product: Callable[[Floats], Floats], right: Floats) -> Floats:
    """Return x for which product(x) is right, by conjugate gradients."""
    found, residual = np.zeros_like(right), right.copy()
    direction, size = residual.copy(), float(residual @ residual)
    for _ in range(200):
        image = product(direction)
        length = size / float(direction @ image)
        found += length * direction
        residual -= length * image
        new = float(residual @ residual)
        if new < 1e-12 * float(right @ right):
            break
        direction = residual + new / size * direction
        size = new
    return found


def sentiment(folder: Path) -> Message:
    """Fit and score the bag of words."""
    train, dev, test = (list(LabeledTable(folder / f"{part}.tsv")) for part in ("train", "dev", "test"))
    labels = sorted({str(text.label) for text in train})
    signs = np.array([1.0 if text.label == labels[1] else -1.0 for text in train])
    best: tuple[float, Message] | None = None
    for pairs in (False, True):
        known: dict[str, int] = {}
        bags = make_bags(train, known, pairs, learn=True)
        for penalty in (0.3, 1.0, 3.0, 10.0, 30.0):
            weights = fit(bags, signs, penalty)
            found = {}
            for name, part in (("dev", dev), ("test", test)):
                margins = make_bags(part, known, pairs, learn=False).times(weights)
                found[name] = [labels[int(margin > 0)] for margin in margins]
            accuracy = label_scores(found["dev"], [text.label for text in dev]).accuracy
            if best is None or accuracy > best[0]:
                expected = [str(text.label) for text in test]
                scores = label_scores(found["test"], expected)
                best = (
                    accuracy,
                    {
                        "method": "bag of words, logistic regression",
                        "chosen": {"pairs of words": pairs, "penalty": penalty},
                        "features": len(known),
                        "dev accuracy": accuracy,
                        "accuracy": scores.accuracy,
                        "macro F1": scores.macro_f1,
                        "confusion": confusion(found["test"], expected).counts.tolist(),
                        "examples": {"train": len(train), "dev": len(dev), "test": len(test)},
                    },
                )
    assert best is not None
    return best[1]


def entities(folder: Path) -> Message:
    """Score the majority tag of each word."""
    train, dev, test = (list(read_sentences(folder / f"{part}.conll")) for part in ("train", "dev", "test"))
    rows = {}
    for lower in (False, True):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for sentence in train:
            for word, tag in zip(sentence.words, sentence.tags, strict=True):
                counts[word.lower() if lower else word][tag] += 1
        majority = {word: min(tags, key=lambda tag, t=tags: (-t[tag], tag)) for word, tags in counts.items()}
        scores = []
        for part in (dev, test):
            found = [[majority.get(word.lower() if lower else word, "O") for word in one.words] for one in part]
            scores.append(span_scores(found, [one.tags for one in part]))
        rows[scores[0].all.f1] = {
            "method": "majority tag of each word, O for unknown ones",
            "chosen": {"lower case": lower},
            "dev F1": scores[0].all.f1,
            "F1": scores[1].all.f1,
            "precision": scores[1].all.precision,
            "recall": scores[1].all.recall,
            "accuracy of tags": scores[1].accuracy,
            "F1 by type": {type: score.f1 for type, score in scores[1].by_type.items()},
            "sentences": {"train": len(train), "dev": len(dev), "test": len(test)},
        }
    return rows[max(rows)]


class Choice(NamedTuple):
    """What the sliding window is made of."""

    width: int
    """Words on each side of a span that are looked at."""
    longest: int
    """Words of the longest span."""
    reward: float
    """For each word of a span, as a share of its rarity."""


def xquad_parts(data: Path) -> list[list[Paragraph]]:
    """Return the paragraphs for training, development and test."""
    return split_paragraphs(read_squad(data / "xquad" / "xquad.en.json"), XQUAD_SHARES, XQUAD_SEED)


def rarity(paragraphs: Sequence[Paragraph]) -> dict[str, float]:
    """Return for each word the logarithm of how many paragraphs there are to one that has it; "" is an unseen word."""
    seen = Counter(word for one in paragraphs for word in {*space_words(one.context.lower()).split()})
    return {
        "": math.log(len(paragraphs) + 1),
        **{w: math.log((len(paragraphs) + 1) / (n + 0.5)) for w, n in seen.items()},
    }


def spans(text: str, longest: int) -> Iterator[tuple[int, int, list[re.Match[str]]]]:
    """Yield spans of words that cross no punctuation mark of a sentence, as places among all words and marks."""
    words = list(re.finditer(r"\w+(?:['’-]\w+)*|[^\w\s]", text))
    for first in range(len(words)):
        for behind in range(first + 1, min(first + longest, len(words)) + 1):
            if words[behind - 1].group() in ".!?;:":
                break
            if words[first].group()[0].isalnum() and words[behind - 1].group()[-1].isalnum():
                yield first, behind, words


def answer(question: Question, context: str, rare: dict[str, float], choice: Choice) -> str:
    """Return the span with the most and rarest words of the question around it and none inside."""
    asked = {*space_words(question.text.lower()).split()}
    best, found = -1.0, ""
    weights: list[float] | None = None
    for first, behind, words in spans(context, choice.longest):
        if weights is None:
            lowered = [word.group().lower() for word in words]
            weights = [rare.get(word, rare[""]) for word in lowered]
        if any(word in asked for word in lowered[first:behind]):
            continue
        before = range(max(0, first - choice.width), first)
        near = {lowered[i]: weights[i] for i in (*before, *range(behind, min(len(words), behind + choice.width)))}
        score = sum(weight for word, weight in near.items() if word in asked)
        score += choice.reward * sum(weights[first:behind]) / math.sqrt(behind - first)
        if score > best:
            best, found = score, context[words[first].start() : words[behind - 1].end()]
    return found


def answers(data: Path) -> Message:
    """Score the sliding window."""
    train, dev, test = xquad_parts(data)
    rare = rarity(train)

    def scored(part: Sequence[Paragraph], choice: Choice) -> tuple[float, float]:
        asked = [(question, one.context) for one in part for question in one.questions]
        found = [answer(question, context, rare, choice) for question, context in asked]
        scores = answer_scores(found, [[a.text for a in question.answers] for question, _ in asked], "1.1")
        return scores.all.f1, scores.all.exact

    choices = [
        Choice(width, longest, reward) for width in (5, 10, 20) for longest in (1, 2, 3, 5) for reward in (0, 0.3, 1)
    ]
    ranked = sorted(((scored(dev, choice)[0], choice) for choice in choices), reverse=True)
    f1, exact = scored(test, ranked[0][1])
    return {
        "method": "sliding window, words shared with the question weighed by their rarity",
        "split": {"shares of paragraphs": XQUAD_SHARES, "seed": XQUAD_SEED},
        "chosen": ranked[0][1]._asdict(),
        "dev F1": ranked[0][0],
        "exact": exact,
        "F1": f1,
        "questions": dict(zip(("train", "dev", "test"), map(n_questions, (train, dev, test)), strict=True)),
    }


def n_questions(part: Sequence[Paragraph]) -> int:
    """Return how many questions some paragraphs have."""
    return sum(len(one.questions) for one in part)


def main() -> None:
    """Score all three, write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    rows = {
        "sentence-polarity": sentiment(options.data / "sentence-polarity"),
        "wnut17": entities(options.data / "wnut17"),
        "xquad": answers(options.data),
    }
    save_result(options.result, {"machine": machine(), "rows": rows})
    for name, row in rows.items():
        print(name, {key: value for key, value in row.items() if isinstance(value, float | str)})


if __name__ == "__main__":
    main()
