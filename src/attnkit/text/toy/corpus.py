"""Toy corpora: English–French, digit reversal, code, headlines and reviews."""

import os
import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Literal

from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.io.safe_read import file_equals
from attnkit.text.toy.english_french import Sampler
from attnkit.text.toy.lexicon import read_tables

Pair = tuple[str, str]
Parts = dict[str, list[Pair]]
Kind = Literal["english-french", "reverse", "summary", "code", "reviews"]
Progress = Callable[[int], None]  #: called with the number of pairs made so far
MAX_TRAIN_LENGTH, MAX_LONG_LENGTH = 25, 30

_TABLES = read_tables("simple_corpora.txt")
_CODE, _HEADLINES, _REVIEWS = (_TABLES[name] for name in ("code", "headlines", "reviews"))
# Examples from the lecture notes, kept out of all parts of the corpus so that their translations are unseen.
NOTES_SENTENCES = ("I am a student.", "The cat sat on the mat.")
# Words of these examples, never in reserved pairs: the sentences are unseen in training, their word pairs are not.
_NEVER_RESERVED = frozenset(["noun:cat", "noun:mat", "verb:sit", "noun:student"])
_RESERVED_SHARE = 40  # one in 40 pairs of content words is kept out of training
_NOVEL_TENTHS = 6  # tenths of the held-out sentences that contain a reserved pair


def ignore_progress(n_pairs: int) -> None:
    """Show nothing."""


def make_files(
    kind: Kind, n_train: int, seed: int, *, n_valid: int = 500, n_test: int = 1000, progress: Progress = ignore_progress
) -> dict[str, list[str]]:
    """Generate a corpus; return the lines of each file by name, such as ``train.en``.

    The result depends only on the arguments. ``reverse`` also has ``test-long``, with strings longer than in training.
    ``reviews`` has files such as ``train.tsv``, with documents and labels separated by a tab.
    """
    if kind == "reviews":
        parts = make_reviews(seed, n_train, n_valid, n_test, progress)
        return {f"{name}.tsv": [f"{text}\t{label}" for text, label in rows] for name, rows in parts.items()}
    if kind == "english-french":
        return as_files(make_corpus(seed, n_train, n_valid, n_test, progress).parts, ("en", "fr"))
    if kind == "reverse":
        return as_files(make_reversal(seed, n_train, n_valid, n_test, progress), ("src", "tgt"))
    return as_files(make_distinct(kind, seed, n_train, n_valid, n_test, progress), ("src", "tgt"))


def as_files(parts: Mapping[str, Sequence[Pair]], endings: tuple[str, str]) -> dict[str, list[str]]:
    """Return the lines of each file by name, with one file per side of a part.

    >>> as_files({"train": [("a", "b"), ("c", "d")]}, ("en", "fr"))
    {'train.en': ['a', 'c'], 'train.fr': ['b', 'd']}
    """
    return {
        f"{name}.{ending}": [pair[side] for pair in pairs]
        for name, pairs in parts.items()
        for side, ending in enumerate(endings)
    }


def write_files(files: Mapping[Path, Sequence[str]], overwrite: bool) -> None:
    """Write files of lines; files with the same content may exist.

    Raises:
        UsageError: a file exists with different content, and ``overwrite`` is False.
    """
    contents = {path: "".join(f"{line}\n" for line in lines).encode() for path, lines in files.items()}
    for folder in dict.fromkeys(path.parent for path in contents):
        atomic.make_dirs(folder)
    for path, content in contents.items():
        # A symbolic link counts as different content, because the new file would replace it.
        if not overwrite and os.path.lexists(path) and not file_equals(path, content):
            raise UsageError(f"{path} exists with different content", help="choose another folder, or add --overwrite")
    for path, content in contents.items():
        atomic.write_bytes(path, content)


@dataclass
class Corpus:
    """English–French corpus; sources in ``novel`` have a word pair unseen in training."""

    test: list[Pair] = field(default_factory=list)
    valid: list[Pair] = field(default_factory=list)
    train: list[Pair] = field(default_factory=list)
    novel: set[str] = field(default_factory=set)

    @property
    def parts(self) -> Parts:
        """Pairs of each part by name."""
        return {"test": self.test, "valid": self.valid, "train": self.train}


def make_corpus(seed: int, n_train: int, n_valid: int, n_test: int, progress: Progress = ignore_progress) -> Corpus:
    """Generate an English–French corpus, reproducible and without duplicate sources.

    Six in ten held-out sentences contain a reserved pair of content words, which the seed keeps out of training.
    """
    rng = random.Random(f"english-french {seed}")
    sampler, corpus, seen = Sampler(rng), Corpus(), {line.lower().rstrip(".") for line in NOTES_SENTENCES}
    left: dict[tuple[str, bool], int] = {}
    for name, size in (("test", n_test), ("valid", n_valid), ("train", n_train)):
        n_novel = 0 if name == "train" else -(-size * _NOVEL_TENTHS // 10)
        left |= {(name, True): n_novel, (name, False): size - n_novel}
    while any(left.values()):
        sentence = sampler.sentence()
        if sentence.key in seen:
            continue
        content_pairs = combinations(sorted(sentence.content - _NEVER_RESERVED), 2)
        novel = any(zlib.crc32(f"{seed} {a} {b}".encode()) % _RESERVED_SHARE == 0 for a, b in content_pairs)
        part = next((name for name in corpus.parts if left[name, novel]), None)
        if part:
            seen.add(sentence.key)
            left[part, novel] -= 1
            corpus.parts[part].append((sentence.en, sentence.fr))
            if novel:
                corpus.novel.add(sentence.en)
            progress(n_test + n_valid + n_train - sum(left.values()))
    for pairs in (corpus.test, corpus.valid):
        rng.shuffle(pairs)
    return corpus


def make_reversal(seed: int, n_train: int, n_valid: int, n_test: int, progress: Progress = ignore_progress) -> Parts:
    """Generate digit strings and their reversals: 1-25 digits, 26-30 in test-long.

    Lengths are drawn uniformly. Held-out strings never occur in training; at most a fifth of the strings of each length
    are held out, so that short ones remain for training, where they may occur more than once.
    """
    rng = random.Random(f"reversal {seed}")

    def draw(shortest: int, longest: int) -> str:
        return "".join(rng.choices("0123456789", k=rng.randint(shortest, longest)))

    held_out: set[str] = set()
    n_held_out: Counter[int] = Counter()
    drawn: dict[str, list[str]] = {"train": [], "valid": [], "test": [], "test-long": []}
    short, long = (1, MAX_TRAIN_LENGTH), (MAX_TRAIN_LENGTH + 1, MAX_LONG_LENGTH)
    for name, size, lengths in (("test", n_test, short), ("valid", n_valid, short), ("test-long", n_test, long)):
        while len(drawn[name]) < size:
            digits = draw(*lengths)
            if digits not in held_out and n_held_out[len(digits)] * 5 < 10 ** len(digits):
                held_out.add(digits)
                n_held_out[len(digits)] += 1
                drawn[name].append(digits)
    while len(drawn["train"]) < n_train:
        if (digits := draw(*short)) not in held_out:
            drawn["train"].append(digits)
            progress(2 * n_test + n_valid + len(drawn["train"]))
    return {name: [(" ".join(digits), " ".join(reversed(digits))) for digits in drawn[name]] for name in drawn}


def make_distinct(
    kind: Literal["code", "summary"],
    seed: int,
    n_train: int,
    n_valid: int,
    n_test: int,
    progress: Progress = ignore_progress,
) -> Parts:
    """Generate instructions with code or reports with headlines; sources are unique."""
    rng, draw = random.Random(f"{kind} {seed}"), {"code": _statement, "summary": _report}[kind]
    seen: set[str] = set()
    parts: Parts = {}
    for name, size in (("test", n_test), ("valid", n_valid), ("train", n_train)):
        parts[name] = []
        while len(parts[name]) < size:
            pair = draw(rng)
            if pair[0] not in seen:
                seen.add(pair[0])
                parts[name].append(pair)
                progress(len(seen))
    return parts


@dataclass(frozen=True)
class _Value:
    """A value in words and code; ``simple`` code needs no parentheses when nested."""

    words: str
    code: str
    simple: bool = True


def _value(rng: random.Random, depth: int) -> _Value:
    roll = rng.random()
    if depth == 0 or roll < 0.3:
        name, number = rng.choice(_CODE["names"]), str(rng.randint(0, 100))
        return rng.choice((_Value(name, name), _Value(number, number)))
    if roll < 0.5:
        words, code = rng.choice(_CODE["of list"]).split(" | ")
        chosen = rng.choice(_CODE["lists"])
        return _Value(words.format(chosen), code.format(chosen))
    words, code = rng.choice(_CODE["binary"]).split(" | ")
    operands = _value(rng, depth - 1), _value(rng, depth - 1)
    call = code.startswith(("max", "min"))
    written = [value.code if call or value.simple else f"({value.code})" for value in operands]
    return _Value(words.format(*(value.words for value in operands)), code.format(*written), simple=call)


def _statement(rng: random.Random) -> Pair:
    """Draw an instruction and its statement, with expressions nested at most twice."""
    kind = rng.choice(("assignment", "assignment", "conditional", "print", "comprehension"))
    if kind == "assignment":
        target, value = rng.choice(_CODE["names"]), _value(rng, 2)
        opening = rng.choice(("Set {} to {}.", "Let {} be {}."))
        return opening.format(target, value.words), f"{target} = {value.code}"
    if kind == "conditional":
        target = rng.choice(_CODE["names"])
        words, code = rng.choice(_CODE["tests"]).split(" | ")
        left, right = rng.choice(_CODE["names"]), _value(rng, 1)
        yes, no = _value(rng, 1), _value(rng, 0)
        said = f"Set {target} to {yes.words} if {words.format(left, right.words)}, otherwise to {no.words}."
        return said, f"{target} = {yes.code} if {code.format(left, right.code)} else {no.code}"
    if kind == "print":
        value = _value(rng, 2)
        return f"{rng.choice(('Print', 'Show'))} {value.words}.", f"print({value.code})"
    target, source = rng.sample(_CODE["lists"], 2)
    change, code = rng.choice(_CODE["changes"]).split(" | ")
    words, made = f"Make {target} from {change} each of {source}", f"{target} = [{code.format('n')} for n in {source}"
    if rng.random() < 0.5:
        sign, bound = rng.choice((("above", ">"), ("below", "<"))), rng.randint(0, 100)
        return f"{words} that is {sign[0]} {bound}.", f"{made} if n {sign[1]} {bound}]"
    return f"{words}.", f"{made}]"


def _report(rng: random.Random) -> Pair:
    """Draw a report (facts from a template and an opinion) and its headline."""

    class Words(dict[str, str | list[str]]):
        def __missing__(self, name: str) -> str:  # a word drawn anew wherever the text uses it
            return rng.choice(_HEADLINES[name])

    names, *facts, headline = rng.choice(list(_TABLES["reports"].values()))
    words = Words()
    for entry in names.split():
        name, _, n = entry.partition("*")
        if name == "score":
            losing, margin = rng.randint(0, 4), rng.randint(1, 4)
            words[name] = f"{losing + margin}-{losing}"
        else:
            drawn = rng.sample(_HEADLINES[name], int(n)) if n else [rng.choice(_HEADLINES[name])]
            filled = [word.format_map(words) for word in drawn]
            words[name] = filled if n else filled[0]
    sentences = []
    for fact in facts:
        alternatives = [text.format_map(words) for text in fact.split(" | ")]
        sentences.append(rng.choice(alternatives) if len(alternatives) > 1 else alternatives[0])
    # an irrelevant sentence among the facts, which stay in order
    sentences.insert(rng.randint(1, len(sentences)), rng.choice(_HEADLINES["opinion"]))
    headline = headline.format_map(words)
    return " ".join(sentences), headline[0].upper() + headline[1:]


def make_reviews(seed: int, n_train: int, n_valid: int, n_test: int, progress: Progress = ignore_progress) -> Parts:
    """Generate reviews labeled "bad" or "good"; no review occurs in two parts."""
    rng = random.Random(f"reviews {seed}")
    labels = ("bad", "good")
    seen: set[str] = set()
    parts: Parts = {"train": [], "valid": [], "test": []}
    for name, size in (("test", n_test), ("valid", n_valid), ("train", n_train)):
        while len(parts[name]) < size:
            label = rng.choice(labels)
            opinions = [rng.choice(_REVIEWS[rng.choice(labels)]) for _ in range(rng.randint(1, 3))]
            others = [rng.choice(_REVIEWS["others"]).format(opinion) for opinion in opinions]
            filler = [
                text.format(**{name: rng.choice(_REVIEWS[name]) for name in ("day", "place", "kin", "thing")})
                for text in rng.sample(_REVIEWS["filler"], rng.randint(2, 4))
            ]
            sentences = [rng.choice(_REVIEWS["own"]).format(rng.choice(_REVIEWS[label])), *others, *filler]
            rng.shuffle(sentences)
            if (review := " ".join(sentences)) not in seen:
                parts[name].append((review, label))
                progress(sum(map(len, parts.values())))
        seen.update(text for text, _ in parts[name])
    return parts
