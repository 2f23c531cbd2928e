"""Short reviews labeled by sentiment: one sentence of each, the writer's own opinion, decides the label.

Other people's opinions use the same words, and the rest is filler. Counting words is little better than chance; a model
must find the sentence.
"""

from __future__ import annotations

import random

Review = tuple[str, str]

_WORDS = {
    "bad": ("awful", "dull", "clumsy", "tedious", "poor", "lifeless"),
    "good": ("superb", "witty", "lovely", "gripping", "clever", "moving"),
}
_OWN = ("I found it {}.", "To me it was {}.", "I would call it {}.", "In my opinion it is {}.")
_OTHERS = (
    "The critics called it {}.",
    "My brother said it was {}.",
    "Some people in the row behind us thought it {}.",
    "The poster says it is {}!",
)
_FILLER = (
    "We saw it on a {day}.",
    "It runs for two hours and a half.",
    "The {place} was half empty.",
    "It was made by the {kin} of a baker.",
    "There was {thing} before it began.",
    "We went home by bus.",
)
_BLANKS = {
    "day": ("Monday", "rainy Tuesday", "Friday night", "Sunday"),
    "place": ("cinema", "hall", "small theatre"),
    "kin": ("son", "daughter", "cousin"),
    "thing": ("a long queue", "no tea", "some music", "a speech"),
}


def make_reviews(seed: int, n_train: int, n_valid: int, n_test: int) -> dict[str, list[Review]]:
    """Make train, valid and test reviews with their labels, "bad" or "good"; no review is in two parts."""
    rng = random.Random(f"reviews {seed}")
    seen: set[str] = set()
    parts: dict[str, list[Review]] = {}
    for name, size in (("test", n_test), ("valid", n_valid), ("train", n_train)):
        parts[name] = []
        while len(parts[name]) < size:
            review = _review(rng)
            if review[0] not in seen:
                parts[name].append(review)
        seen.update(text for text, _ in parts[name])
    return {name: parts[name] for name in ("train", "valid", "test")}


def _review(rng: random.Random) -> Review:
    label = rng.choice(sorted(_WORDS))
    opinions = [rng.choice(_WORDS[rng.choice(sorted(_WORDS))]) for _ in range(rng.randint(1, 3))]
    others = [rng.choice(_OTHERS).format(opinion) for opinion in opinions]
    filler = [
        text.format(**{name: rng.choice(words) for name, words in _BLANKS.items()})
        for text in rng.sample(_FILLER, rng.randint(2, 4))
    ]
    sentences = [rng.choice(_OWN).format(rng.choice(_WORDS[label])), *others, *filler]
    rng.shuffle(sentences)
    return " ".join(sentences), label
