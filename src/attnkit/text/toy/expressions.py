"""English instructions and the Python statements they ask for: code generation as sequence-to-sequence training."""

from __future__ import annotations

import random
from dataclasses import dataclass

Pair = tuple[str, str]
_NAMES = ("x", "y", "z", "total", "count", "price", "width", "height", "age", "score", "index", "size", "rate", "speed")
_LISTS = ("items", "values", "names", "words", "numbers", "prices", "scores", "rows", "lines", "users")
_BINARY = (("the sum of {} and {}", "{} + {}"), ("the product of {} and {}", "{} * {}"),
           ("the difference of {} and {}", "{} - {}"), ("the quotient of {} and {}", "{} / {}"),
           ("the remainder of {} by {}", "{} % {}"), ("the larger of {} and {}", "max({}, {})"),
           ("the smaller of {} and {}", "min({}, {})"))  # fmt: skip
_OF_LIST = (("the length of {}", "len({})"), ("the sum of {}", "sum({})"), ("the largest of {}", "max({})"),
            ("the smallest of {}", "min({})"), ("the first of {}", "{}[0]"), ("the last of {}", "{}[-1]"))  # fmt: skip
_TESTS = (("{} is greater than {}", "{} > {}"), ("{} is less than {}", "{} < {}"), ("{} equals {}", "{} == {}"),
          ("{} is at least {}", "{} >= {}"), ("{} differs from {}", "{} != {}"))  # fmt: skip
_CHANGES = (("double", "2 * {}"), ("the square of", "{} ** 2"), ("half of", "{} / 2"), ("the negative of", "-{}"),
            ("the absolute value of", "abs({})"))  # fmt: skip


@dataclass(frozen=True)
class _Value:
    """A value in words and in code; ``simple`` code needs no parentheses inside a larger expression."""

    words: str
    code: str
    simple: bool = True

    def inside(self) -> str:
        return self.code if self.simple else f"({self.code})"


def make_expressions(seed: int, n_train: int, n_valid: int, n_test: int) -> dict[str, list[Pair]]:
    """Make instructions and statements whose expressions nest up to two deep; no instruction occurs twice."""
    rng = random.Random(f"code {seed}")
    seen: set[str] = set()
    parts: dict[str, list[Pair]] = {}
    for name, size in (("test", n_test), ("valid", n_valid), ("train", n_train)):
        parts[name] = []
        while len(parts[name]) < size:
            pair = rng.choice((_assign, _assign, _conditional, _print, _comprehend))(rng)
            if pair[0] not in seen:
                seen.add(pair[0])
                parts[name].append(pair)
    return parts


def _value(rng: random.Random, depth: int) -> _Value:
    roll = rng.random()
    if depth == 0 or roll < 0.3:
        return rng.choice((_Value(name := rng.choice(_NAMES), name), _Value(n := str(rng.randint(0, 100)), n)))
    if roll < 0.5:
        words, code = rng.choice(_OF_LIST)
        chosen = rng.choice(_LISTS)
        return _Value(words.format(chosen), code.format(chosen))
    words, code = rng.choice(_BINARY)
    left, right = _value(rng, depth - 1), _value(rng, depth - 1)
    call = code.startswith(("max", "min"))
    filled = code.format(*((left.code, right.code) if call else (left.inside(), right.inside())))
    return _Value(words.format(left.words, right.words), filled, simple=call)


def _test(rng: random.Random) -> _Value:
    words, code = rng.choice(_TESTS)
    left, right = rng.choice(_NAMES), _value(rng, 1)
    return _Value(words.format(left, right.words), code.format(left, right.code))


def _assign(rng: random.Random) -> Pair:
    target, value = rng.choice(_NAMES), _value(rng, 2)
    opening = rng.choice(("Set {} to {}.", "Let {} be {}."))
    return opening.format(target, value.words), f"{target} = {value.code}"


def _conditional(rng: random.Random) -> Pair:
    target, test, yes, no = rng.choice(_NAMES), _test(rng), _value(rng, 1), _value(rng, 0)
    words = f"Set {target} to {yes.words} if {test.words}, otherwise to {no.words}."
    return words, f"{target} = {yes.code} if {test.code} else {no.code}"


def _print(rng: random.Random) -> Pair:
    value = _value(rng, 2)
    return f"{rng.choice(('Print', 'Show'))} {value.words}.", f"print({value.code})"


def _comprehend(rng: random.Random) -> Pair:
    target, source = rng.sample(_LISTS, 2)
    change, code = rng.choice(_CHANGES)
    words, made = f"Make {target} from {change} each of {source}", f"{target} = [{code.format('n')} for n in {source}"
    if rng.random() < 0.5:
        sign, bound = rng.choice((("above", ">"), ("below", "<"))), rng.randint(0, 100)
        return f"{words} that is {sign[0]} {bound}.", f"{made} if n {sign[1]} {bound}]"
    return f"{words}.", f"{made}]"
