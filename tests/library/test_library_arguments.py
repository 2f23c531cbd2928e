"""Arguments of public calls: what does not fit is named, with what is expected and what to do next."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest

import attnkit
from attnkit.config.arguments import Count, _fits, _hints, checked
from attnkit.errors import DataError, RunError, UsageError
from shown_blocks import blocks_to_run

OTHERS = {"Vectors", "Word2Vec"}
"""Their methods are as in gensim, which take words, numbers or vectors."""


def public_calls() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Yield the name of each public function and method, the function itself, and what it is bound to."""
    for name in attnkit.__all__:
        found = getattr(attnkit, name)
        if inspect.isfunction(found):
            yield name, found, None
        elif inspect.isclass(found) and name not in OTHERS:
            for method, of in vars(found).items():
                if not method.startswith("_") and (inspect.isfunction(of) or isinstance(of, classmethod)):
                    yield f"{name}.{method}", inspect.unwrap(getattr(of, "__func__", of)), found


CALLS = {name: (call, owner) for name, call, owner in public_calls()}


def examples() -> dict[str, str]:
    """Return the code that the page of examples runs, by its headings."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "python-examples.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {one.split("\n")[0]: "\n".join(block.code for block in blocks_to_run(one)) for one in sections}


def test_every_public_call_has_an_example_that_is_run() -> None:
    """``test_documents.py`` runs them: methods below the heading of their class, functions anywhere."""
    found = examples()
    missing = []
    for name in attnkit.__all__:
        thing = getattr(attnkit, name)
        if not inspect.isclass(thing):
            missing += [] if re.search(rf"\battnkit\.{name}\b", "".join(found.values())) else [name]
            continue
        (code,) = (code for heading, code in found.items() if f"`{name}`" in heading)
        methods = [key for key, one in inspect.getmembers(thing) if callable(one) and not key.startswith("_")]
        used = {key: f"attnkit.{name}.load(" if key == "load" else f".{key}(" for key in methods}
        missing += [f"{name}.{key}" for key, call in used.items() if call not in code]
    assert missing == [] and len(found) > 9


def sample(hint: Any) -> Any:
    """Return a value that fits a type."""
    for value in ("a", 1, 1.5, True, None, ["a"], [["a", "b"]], {"a": "b"}, lambda: None, *get_args(hint), dict):
        if _fits(value, hint):
            return value
    raise AssertionError(hint)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_value_of_another_type_is_refused_and_named(name: str) -> None:
    call, owner = CALLS[name]
    public: Any = attnkit
    for part in name.split("."):
        public = getattr(public, part)
    hints = _hints(call)
    known = [one for one in inspect.signature(call).parameters.values() if one.name in hints]
    of_list = {one.name for one in known if one.kind is one.VAR_POSITIONAL}
    needed = {
        one.name: sample(hints[one.name]) for one in known if one.default is one.empty and one.name not in of_list
    }
    itself = [] if owner is None or inspect.ismethod(public) else [owner.__new__(owner)]
    for keyword in hints:
        with pytest.raises(UsageError, match=rf"^{keyword} must be .*a object") as error:
            if keyword in of_list:
                public(*itself, *needed.values(), object())
            else:
                public(*itself, **{**needed, keyword: object()})
        assert error.value.where == f"attnkit.{name}" and error.value.help, keyword
    with pytest.raises(UsageError, match="unknown argument 'colour'") as error:
        public(*itself, **needed, colour=1)
    assert error.value.help


def test_a_call_on_a_list_has_one_on_a_stream() -> None:
    """With the same keywords, for texts that need not fit into memory."""
    names = ("translate", "fill", "score", "embed", "predict", "generate", "reconstruct")
    lists = [name for name in CALLS if name.split(".")[-1] in names]
    assert len(lists) > 12
    for name in lists:
        own, other = ({*inspect.signature(CALLS[key][0]).parameters} for key in (name, f"{name}_stream"))
        # The length of a stream is unknown: it has no progress. It has an order of its own.
        assert own - other <= {"quiet", "on_done"} and not other - own


@checked
def example(
    run: str | Path,
    lines: Sequence[str],
    *others: str | Path,
    files: str | Path | Sequence[str | Path] = "a",
    kind: Literal["first", "second"] | None = None,
    n: int = 1,
    more: Count | None = None,
    share: float = 0.5,
    flag: bool = False,
    terms: Mapping[str, str | Sequence[str]] | None = None,
    pairs: Sequence[tuple[str, str]] = (),
    kinds: Sequence[Literal["first", "second"]] = (),
    stream: Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Return how many lines there are."""
    return len(lines)


@pytest.mark.parametrize(
    ("given", "what", "help"),
    [
        ({"lines": "a b"}, "lines must be a list of texts, not 'a b'", "put it into a list: [text]"),
        ({"lines": ["a", 5]}, "lines must be a list of texts; item 1 is 5", "see help(attnkit.example)"),
        ({"lines": {"a": 1}}, "lines must be a list of texts, not a dict", None),
        (
            {"lines": iter("ab")},
            "lines must be a list of texts, not a str_",
            "take list(…) of it, or the call for streams",
        ),
        ({"run": ["a"]}, "run must be a path, not a list", None),
        ({"run": None}, "run must be a path, not None", None),
        ({"files": ["a", None]}, "files must be a path or a list of paths; item 1 is None", None),
        ({"kind": "secnd"}, "kind must be one of first, second or None, not 'secnd'", "did you mean 'second'?"),
        ({"more": 0}, "more must be a whole number of at least 1 or None, not 0", None),
        ({"kinds": ["secnd"]}, "kinds must be a list of one of first, second; item 0 is", "did you mean 'second'?"),
        ({"n": 1.5}, "n must be a whole number, not 1.5", None),
        ({"n": True}, "n must be a whole number, not True", None),
        ({"share": "1"}, "share must be a number, not '1'", None),
        ({"flag": "yes"}, "flag must be True or False, not 'yes'", None),
        ({"terms": {"a": 1}}, "terms must be a mapping of texts to texts or lists of texts or None, not a dict", None),
        ({"pairs": [("a",)]}, "pairs must be a list of pairs (a text, a text); item 0 is a tuple", None),
        ({"stream": "ab"}, "stream must be an iterable of texts, not 'ab'", None),
        ({"shar": 1.0}, "unknown argument 'shar'", "did you mean share?"),
        ({"d_model": 1.0}, "unknown argument 'd_model'", "go into settings, e.g. settings={'d_model': …}"),
    ],
)
def test_messages_say_what_is_wrong(given: Mapping[str, Any], what: str, help: str | None) -> None:
    with pytest.raises(UsageError) as error:
        example(**{"run": "a", "lines": [], **given})
    assert error.value.what.startswith(what) and error.value.where == "attnkit.example"
    assert error.value.help is not None and error.value.help.endswith(help or "see help(attnkit.example)")


def test_what_fits_passes() -> None:
    given: Any = {"n": np.int64(3), "share": 1, "terms": {"a": ["b"]}, "pairs": [["a", "b"]], "stream": iter("ab")}
    assert example(Path("a"), np.array(["a", "b"]), "b", files=[Path("a"), "b"], kind="first", **given) == 2
    with pytest.raises(UsageError, match="missing a required argument: 'lines'"):
        example("a")  # type: ignore[call-arg]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tracebacks have no notes")
def test_a_traceback_shows_where_and_what_next() -> None:
    with pytest.raises(UsageError) as error:
        example("a", ["b"], kind="frst")  # type: ignore[arg-type]
    last = "".join(traceback.format_exception(error.value)).splitlines()[-2:]
    assert last == ["  at attnkit.example", "help: did you mean 'first'?"]


def test_places_that_a_machine_does_not_have(trained: Path) -> None:
    for load in (attnkit.load, attnkit.Translator.load):
        with pytest.raises(UsageError, match="device must be one of auto, cpu, cuda, mps, not 'gpu'"):
            load(trained, device="gpu")
        for engine in ("auto", "torch"):
            with pytest.raises(UsageError, match="threads must be a whole number of at least 1 or None, not -3"):
                load(trained, device="cpu", threads=-3, engine=engine)
        with pytest.raises(UsageError, match="engine must be one of auto, compiled, torch, not 'x'"):
            load(trained, engine="x")  # type: ignore[arg-type]
        with pytest.raises(RunError, match="step-99"):
            load(trained, checkpoint="step-99")
        with pytest.raises(UsageError, match="unknown argument 'devices'"):
            load(trained, devices="cpu")


def test_calls_of_a_translator_name_what_is_wrong(trained: Path) -> None:
    translator = attnkit.Translator.load(trained, device="cpu")
    given: Any = {"beam": 3}
    for call in (translator.translate, translator.translate_stream, translator.translate_texts):
        with pytest.raises(UsageError, match="unknown argument 'beam'") as error:
            call(["1 2"], **given)
        assert error.value.help == "did you mean beam_size?"
    with pytest.raises(UsageError, match="beam_size: invalid value 0"):
        translator.translate(["1"], beam_size=0)
    with pytest.raises(DataError, match="1 lines, but 2 prefixes"):
        translator.translate(["1"], prefixes=["1", "2"])
    with pytest.raises(DataError, match="2 sources, but 1 targets"):
        translator.score(["1", "2"], ["1"])
    with pytest.raises(DataError, match="one stream ends before another") as short:
        list(translator.score_stream(["1", "2"], ["1"]))
    assert short.value.where == "item 2"
