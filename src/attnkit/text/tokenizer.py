"""Text to ids and back, without loss, by a vocabulary of any kind."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attnkit.errors import DataError, RunError, SystemFailure
from attnkit.io.safe_read import parse_json, read_regular_file
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text import vocabulary_schema as schema
from attnkit.text.config import VocabularyConfig
from attnkit.text.hf_pipelines import BERT_CONTINUED, CONTINUED, build, display
from attnkit.text.vocabulary_schema import UNUSED

FORMAT = "attnkit vocabulary"
VERSION = 1
REMEMBERED = 2_000_000
"""Characters of chunks that are remembered before all are forgotten (some 80 MB)."""
MAX_CHUNK = 1 << 16
"""Characters without a space that are encoded as one: beyond, memory would run out before the text does."""

_SPACED = re.compile(r" +[^ ]*")
_BEFORE_SPACES = re.compile(r"(?<=\S)(?= )")
"""Across which no word of GPT-2 reaches."""


class Tokenizer:
    """A trained vocabulary; ``train_vocabulary`` makes one, ``load`` reads one."""

    def __init__(self, config: VocabularyConfig, engine: dict[str, Any]) -> None:
        """Store the parts.

        Args:
            config: How the vocabulary was made.
            engine: A tokenizer in the JSON form of Hugging Face ``tokenizers``, without added tokens; the first
                ids are the special entries and the symbols.

        Raises:
            ValueError: It is not the tokenizer of such a vocabulary.
        """
        self.config = config
        self._engine_json = engine
        self._names = schema.validate(config, engine)
        self._engine = build(engine)
        self._bytes = schema.token_bytes(config, self._names)
        # a word vocabulary knows a symbol only as a word, with the space that begins every word
        space = " " if config.kind == "word" else ""
        self._symbols = {space + symbol: len(SPECIALS) + i for i, symbol in enumerate(config.symbols)}
        self._symbol_pattern = None if config.kind == "word" else symbol_pattern(config.symbols)
        self._shown: dict[int, str] = {}
        self._known: dict[str, list[int]] = {}
        self._remembered = 0

    @property
    def vocab_size(self) -> int:
        """Number of entries: ids run from 0 to this minus 1."""
        return len(self._names)

    @property
    def n_unused(self) -> int:
        """Number of entries that only fill up the size and never occur."""
        return sum(UNUSED.fullmatch(name) is not None for name in self._names)

    def token_id(self, text: str) -> int | None:
        """Return the id of a text that always stays one token, None where it is none."""
        return self._symbols.get((" " if self.config.kind == "word" else "") + text)

    def is_continuation(self, id: int) -> bool:
        """Return whether an entry is one that WordPiece uses inside a word alone."""
        mark = {"wordpiece": CONTINUED, "bert": BERT_CONTINUED}.get(self.config.kind)
        return mark is not None and self._names[id].startswith(mark)

    @property
    def word_prefix(self) -> str:
        """What precedes each chunk when it is encoded."""
        return "" if self.config.kind == "gpt2" else " "

    def chunks(self, line: str) -> list[str]:
        """Return the parts of a line, in order, that are encoded each on its own; they lack the ``word_prefix``."""
        if self.config.kind == "gpt2":  # which tells a first word from the others
            return _BEFORE_SPACES.split(line) if line else []
        return cut(line, runs=self.config.kind != "word")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the JSON form, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without begin or end; any text is ordinary text, ``</s>`` too.

        Raises:
            DataError: A line holds a lone surrogate, which is not a character.
        """
        chunks = [self.chunks(line) for line in lines]
        self._learn(chunks)
        known = self._known
        encoded = []
        for line in chunks:
            ids: list[int] = []
            for chunk in line:
                ids += known[chunk]
            encoded.append(ids)
        if self.config.kind == "char":  # its space before the line is a token of its own
            return [ids[1:] for ids in encoded]
        return encoded

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each sequence; padding, begin and end are skipped, unknown reads ``<unk>``."""
        table = self._bytes
        texts = [b"".join([table[i] for i in line]).decode("utf-8", errors="replace") for line in ids]
        if self.config.kind in ("char", "gpt2"):
            return texts
        return [text[1:] if text.startswith(" ") else text for text in texts]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return each id for people: a space shows as ``▁``, parts of a character and controls as ``<0x..>``."""
        shown = self._shown
        return [shown[i] if i in shown else shown.setdefault(i, self._show(i)) for i in ids]

    def _show(self, id: int) -> str:
        return self._names[id] if id == UNK_ID else display(self._bytes[id]) or self._names[id]

    def bytes_of(self, id: int) -> bytes:
        """Return the bytes of UTF-8 that an id represents, none for padding and the like."""
        return self._bytes[id]

    def encode_with_offsets(self, texts: list[str]) -> list[list[tuple[int, int, int]]]:
        """Return for each text without symbols its ids, each with where it begins and ends, in characters as given.

        Raises:
            DataError: A text holds a lone surrogate.
        """
        try:
            found = self._engine.encode_batch(texts, add_special_tokens=False)
        except TypeError as error:
            raise _surrogate() from error
        return [[(id, *span) for id, span in zip(one.ids, one.offsets, strict=True)] for one in found]

    def normalize(self, text: str) -> str:
        """Return text as the vocabulary sees it: normalized and lower-cased where that was asked for."""
        normalizer = self._engine.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def to_json(self) -> str:
        """Return all there is to know, as the text of a vocabulary file.

        Raises:
            DataError: It would be longer than one that can be read again.
        """
        tree = {
            "format": FORMAT,
            "version": VERSION,
            "config": self.config.model_dump(mode="json"),
            "tokenizer": self._engine_json,
        }
        text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")) + "\n"
        if len(text.encode()) > schema.MAX_BYTES:
            what = f"the vocabulary would take more than {schema.MAX_BYTES:,} bytes"
            raise DataError(what, where="vocabulary.size", help="ask for fewer entries")
        return text

    @staticmethod
    def from_json(text: str | bytes, *, where: str = "the vocabulary") -> Tokenizer:
        """Read the text of a vocabulary file.

        Raises:
            RunError: It is none, or one of a later version.
        """
        raw = text.encode("utf-8", errors="surrogatepass") if isinstance(text, str) else text
        try:
            if len(raw) > schema.MAX_BYTES:
                raise ValueError("it is far too long")
            tree = parse_json(raw)
            if not isinstance(tree, dict) or tree.get("format") != FORMAT or type(tree.get("version")) is not int:
                raise ValueError("it does not say that it is one")
            if VERSION < tree["version"] < 1000:
                raise RunError(f"{where} is of version {tree['version']}", help="update attnkit: this one is older")
            if tree["version"] != VERSION or tree.keys() != {"format", "version", "config", "tokenizer"}:
                raise ValueError("it lacks a part, or has one too many")
            config = VocabularyConfig.model_validate_json(json.dumps(tree["config"]))
            return Tokenizer(config, tree["tokenizer"])
        except (ValueError, RecursionError) as error:
            help = "attnkit vocab FILE... -o vocab.json makes one"
            raise RunError(f"{where} is not an attnkit vocabulary, or a damaged one", help=help) from error

    def _learn(self, chunks: Sequence[Sequence[str]]) -> None:
        """Encode and remember the chunks that are not known yet."""
        if self._remembered > REMEMBERED:
            self._known.clear()
            self._remembered = 0
        new = list({chunk for line in chunks for chunk in line if chunk not in self._known})
        if not new:
            return
        self._remembered += sum(map(len, new))
        try:
            self._known.update(zip(new, self._encode_chunks([self.word_prefix + chunk for chunk in new]), strict=True))
        except TypeError as error:  # what tokenizers raises for a str that has no UTF-8
            raise _surrogate() from error

    def _encode_chunks(self, texts: list[str]) -> Iterable[list[int]]:
        if not self._symbols:
            return self._run(texts)
        pattern = self._symbol_pattern
        parts = [[text] if pattern is None else [part for part in pattern.split(text) if part] for text in texts]
        plain = list(dict.fromkeys(part for line in parts for part in line if part not in self._symbols))
        ids = {part: [id] for part, id in self._symbols.items()}
        ids.update(zip(plain, self._run(plain), strict=True))
        return [[id for part in line for id in ids[part]] for line in parts]

    def _run(self, texts: list[str]) -> Iterator[list[int]]:
        if self.config.kind != "word" and any(len(text) > MAX_CHUNK for text in texts):
            return map(self._run_long, texts)
        return (encoding.ids for encoding in self._engine.encode_batch_fast(texts, add_special_tokens=False))

    def _run_long(self, text: str) -> list[int]:
        pieces = (text[i : i + MAX_CHUNK] for i in range(0, len(text), MAX_CHUNK))
        return [id for piece in pieces for id in self._engine.encode(piece, add_special_tokens=False).ids]


def load(path: Path) -> Tokenizer:
    """Read a vocabulary file.

    Raises:
        RunError: There is none at ``path``, or it is damaged.
    """
    help = "attnkit vocab FILE... -o vocab.json makes one"
    try:
        raw = read_regular_file(path, schema.MAX_BYTES, follow=True)
    except FileNotFoundError as error:
        raise RunError(f"no vocabulary file {path}", help=help) from error
    except ValueError as error:
        what = f"no vocabulary file {path}" if path.is_dir() else f"{path} is not an attnkit vocabulary: {error}"
        raise RunError(what, help=help) from error
    except OSError as error:
        raise SystemFailure(f"cannot read {path}: {error.strerror}") from error
    return Tokenizer.from_json(raw, where=str(path))


def cut(line: str, *, runs: bool = True) -> list[str]:
    """Cut a line before each run of spaces (or each space), and take one space off each chunk; "" has no chunks."""
    if not line:
        return []
    if runs and ("  " in line or line[0] == " "):
        return [chunk[1:] for chunk in _SPACED.findall(" " + line)]
    return line.split(" ")


def _surrogate() -> DataError:
    return DataError("a lone surrogate (U+D800 to U+DFFF) is not a character")


def symbol_pattern(symbols: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern with one group that finds the symbols, the longest first, or None where there are none."""
    longest_first = sorted(map(re.escape, symbols), key=len, reverse=True)
    return re.compile("(" + "|".join(longest_first) + ")") if longest_first else None


def _quiet_before_fork() -> None:
    """Keep the threads of ``tokenizers`` out of a forked child, where they would hang, and its warning off stderr."""
    global _PARALLELISM
    _PARALLELISM = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _restore_after_fork() -> None:
    if _PARALLELISM is None:
        os.environ.pop("TOKENIZERS_PARALLELISM", None)
    else:
        os.environ["TOKENIZERS_PARALLELISM"] = _PARALLELISM


_PARALLELISM: str | None = None
os.register_at_fork(before=_quiet_before_fork, after_in_parent=_restore_after_fork)


class IncrementalDecoder:
    """What comes out of ``add`` and, at last, ``end`` is together what ``Tokenizer.decode`` gives of all ids.

    A character whose bytes are spread over several ids comes out with the last of them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._drops_space = tokenizer.config.kind not in ("char", "gpt2")

    def add(self, ids: Iterable[int]) -> str:
        """Return the characters that these ids complete."""
        return self._begun(self._decoder.decode(b"".join(map(self._tokenizer.bytes_of, ids))))

    def end(self) -> str:
        """Return what is left: U+FFFD for a character that was never completed."""
        return self._begun(self._decoder.decode(b"", final=True))

    def _begun(self, text: str) -> str:
        if text and self._drops_space:
            self._drops_space = False
            return text.removeprefix(" ")
        return text


def encode_masked(tokenizer: Tokenizer, line: str, mask: str) -> list[int]:
    """Return the ids of a line, those of ``mask`` where it occurs in the line, without begin or end.

    A mask takes the place of one token. Where tokens bring the space before them, so does the mask; among whole words
    it is one, whatever it touches; a single character stands between what it stands between.

    Raises:
        DataError: the line holds a lone surrogate.
    """
    kind = tokenizer.config.kind
    if kind == "word":
        line = _apart(line, mask)
    elif kind not in ("char", "bert"):
        line = re.sub(rf" +(?={re.escape(mask)})", "", line)
    ids = tokenizer.encode([line])[0]
    id = tokenizer.token_id(mask)
    if line.startswith(mask) and id in ids and kind != "char":
        del ids[: ids.index(id)]  # the space before the line, alone
    return ids


def _apart(line: str, mask: str) -> str:
    """Return a line whose masks are words of their own."""
    if mask not in line:
        return line
    words: list[str] = []
    for part in line.split(mask):
        words += [part.strip(" "), mask]
    return " ".join(word for word in words[:-1] if word)


def fill_masks(tokenizer: Tokenizer, line: str, mask: str, ids: Sequence[int | None]) -> str:
    """Return a line with tokens in the places of its masks, each with the space that it brings or without; None leaves
    the mask there.
    """
    filled, *rest = line.split(mask)
    for id, part in zip(ids, rest, strict=True):
        if id is None:
            filled += mask
        else:
            text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
            if tokenizer.config.kind != "char":
                filled = filled.rstrip(" ")
                text = text if filled else text.removeprefix(" ")
            filled += text
        filled += part
    return filled
