"""SQuAD JSON, versions 1.1 and 2.0: paragraphs, questions and extractive answers.

Rajpurkar et al. 2016, arXiv:1606.05250, and 2018, arXiv:1806.03822. In 2.0, some questions have no answer.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from attnkit.errors import DataError
from attnkit.io.safe_read import parse_json
from attnkit.text.files import LineCounts, undecodable
from attnkit.text.lines import opened

MAX_BYTES = 1 << 28  #: maximum size of a file after decompression; the largest SQuAD file has 42 MB
_HELP = "expected SQuAD JSON: data > paragraphs > context, qas > id, question, answers"
_SURROGATE = re.compile("[\ud800-\udfff]")
Checked = TypeVar("Checked")


@dataclass(frozen=True)
class Answer:
    """An answer: ``text`` occurs at character ``begin`` of the paragraph."""

    text: str
    begin: int


@dataclass(frozen=True)
class Question:
    """A question about a paragraph."""

    id: str
    text: str
    answers: tuple[Answer, ...]  #: answers of the annotators; empty for unanswerable and unlabeled questions
    impossible: bool  #: whether the question is unanswerable

    @property
    def labeled(self) -> bool:
        """Whether the question has gold answers or is marked as unanswerable."""
        return self.impossible or bool(self.answers)


@dataclass(frozen=True)
class Paragraph:
    """A paragraph with its questions."""

    title: str
    context: str
    questions: tuple[Question, ...]


def read_squad(path: Path) -> list[Paragraph]:
    """Read the paragraphs of a SQuAD file, which may be compressed.

    Raises ``DataError`` for invalid JSON, answers that do not occur at their offset, duplicate ids and lone surrogates.
    """
    with opened(path, LineCounts()) as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise DataError(f"this file has more than {MAX_BYTES:,} bytes", where=str(path), help="split it by article")
    try:
        tree = parse_json(raw.removeprefix(b"\xef\xbb\xbf"))
    except UnicodeDecodeError as error:
        begin, end = error.object.rfind(b"\n", 0, error.start) + 1, error.start + 1
        line = error.object[begin:end]
        here = UnicodeDecodeError(error.encoding, line, error.start - begin, len(line), error.reason)
        raise undecodable(path, error.object.count(b"\n", 0, begin) + 1, line, here) from error
    except json.JSONDecodeError as error:
        raise DataError(f"invalid JSON: {error.msg}", where=f"{path}:{error.lineno}", help=_HELP) from error
    except ValueError as error:
        raise DataError(f"this JSON cannot be used: {error}", where=str(path), help=_HELP) from error
    paragraphs = list(_paragraphs(tree, path))
    if not any(paragraph.questions for paragraph in paragraphs):
        raise DataError("no questions in this file", where=str(path), help=_HELP)
    return paragraphs


def write_squad(paragraphs: Sequence[Paragraph]) -> str:
    """Format paragraphs as SQuAD JSON: 2.0 if a question is unanswerable, else 1.1."""
    second = any(question.impossible for paragraph in paragraphs for question in paragraph.questions)
    articles: list[dict[str, Any]] = []
    for paragraph in paragraphs:
        if not articles or articles[-1]["title"] != paragraph.title:
            articles.append({"title": paragraph.title, "paragraphs": []})
        questions = [
            {
                "id": question.id,
                "question": question.text,
                "answers": [{"text": answer.text, "answer_start": answer.begin} for answer in question.answers],
                **({"is_impossible": question.impossible} if second else {}),
            }
            for question in paragraph.questions
        ]
        articles[-1]["paragraphs"].append({"context": paragraph.context, "qas": questions})
    return json.dumps({"version": "v2.0" if second else "1.1", "data": articles}, ensure_ascii=False) + "\n"


def lone_surrogate(text: str) -> str | None:
    """Return the first lone surrogate of a text as ``U+XXXX``, or None.

    >>> lone_surrogate("a\\ud83d")
    'U+D83D'
    """
    match = _SURROGATE.search(text)
    return None if match is None else f"U+{ord(match[0]):04X}"


def mend_surrogates(text: str) -> str:
    """Replace each lone surrogate of a text with U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


_KINDS: dict[type, str] = {list: "a list", str: "a string", int: "an integer", bool: "true or false"}


def _paragraphs(tree: Any, path: Path) -> Iterator[Paragraph]:
    """Parse and check the JSON tree of a file."""
    ids: set[str] = set()

    def fault(what: str, help: str = _HELP) -> DataError:
        return DataError(what, where=str(path), help=help)

    def part(tree: Any, name: str, kind: type[Checked], where: str) -> Checked:
        value = tree.get(name) if isinstance(tree, dict) else None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise fault(f"{where}: '{name}' is missing or not {_KINDS[kind]}")
        if isinstance(value, str) and (half := lone_surrogate(value)) is not None:
            what = f"{where}: '{name}' contains {half}, a lone surrogate"
            raise fault(what, help="replace it with the complete character or U+FFFD")
        return value

    def question(tree: Any, context: str, where: str) -> Question:
        id, text = part(tree, "id", str, where), part(tree, "question", str, where)
        if id in ids:
            raise fault(f"{where}: duplicate question id '{id}'")
        ids.add(id)
        impossible = "is_impossible" in tree and part(tree, "is_impossible", bool, where)
        answers = []
        for i, one in enumerate(part(tree, "answers", list, where) if "answers" in tree else []):
            here = f"{where}.answers[{i}]"
            answer = Answer(part(one, "text", str, here), part(one, "answer_start", int, here))
            if not answer.text:
                raise fault(f"{here}: the answer is empty")
            actual = context[max(0, answer.begin) :][: len(answer.text)]
            if answer.begin < 0 or actual != answer.text:
                found = f"the context at character {answer.begin} is '{actual[:60]}'"
                raise fault(f"{here}: {found}, not '{answer.text[:60]}'")
            answers.append(answer)
        if impossible and answers:
            raise fault(f"{where}: 'is_impossible' is true, but the question has answers ({len(answers)})")
        return Question(id, text, tuple(answers), impossible)

    for i, article in enumerate(part(tree, "data", list, "the file")):
        for j, paragraph in enumerate(part(article, "paragraphs", list, f"data[{i}]")):
            where = f"data[{i}].paragraphs[{j}]"
            context, rows = part(paragraph, "context", str, where), part(paragraph, "qas", list, where)
            questions = tuple(question(row, context, f"{where}.qas[{k}]") for k, row in enumerate(rows))
            title = part(article, "title", str, f"data[{i}]") if isinstance(article.get("title"), str) else ""
            yield Paragraph(title, context, questions)
