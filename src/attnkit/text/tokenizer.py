"""Text to ids and back, without loss, by a vocabulary of any kind."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attnkit.errors import DataError, RunError, SystemFailure
from attnkit.io.safe_read import parse_json, read_regular_file
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text import vocabulary_schema as schema
from attnkit.text.config import VocabularyConfig
from attnkit.text.vocabulary_schema import BERT_CONTINUED, CONTINUED, UNUSED, build

FORMAT = "attnkit vocabulary"
VERSION = 1
MAX_CACHED = 2_000_000  #: characters of chunks in the cache before it is cleared (some 80 MB)
MAX_CHUNK = 1 << 16  #: characters without a space that are encoded at once, to bound memory

_MAKE = "create one: attnkit vocab FILE... -o vocab.json"
_SURROGATE = "a lone surrogate (U+D800 to U+DFFF) is not a character"
_SPACED = re.compile(r" +[^ ]*")
_BEFORE_SPACES = re.compile(r"(?<=\S)(?= )")  #: starts of words in the vocabulary of GPT-2


class Tokenizer:
    """Tokenizer of a trained vocabulary; created by ``train_vocabulary`` or ``load``."""

    def __init__(self, config: VocabularyConfig, engine: dict[str, Any]) -> None:
        """Store the parts. Raises ``ValueError`` if they do not fit.

        Args:
            config: The settings with which the vocabulary was trained.
            engine: A tokenizer in the JSON form of Hugging Face ``tokenizers``, without added tokens; the first
                ids are the special entries and the symbols.
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
        self._n_cached = 0

    @property
    def vocab_size(self) -> int:
        """Number of entries: ids run from 0 to this minus 1."""
        return len(self._names)

    @property
    def n_unused(self) -> int:
        """Number of entries that only fill up the size and never occur."""
        return sum(UNUSED.fullmatch(name) is not None for name in self._names)

    def token_id(self, text: str) -> int | None:
        """Return the id of a symbol, None for other texts."""
        return self._symbols.get((" " if self.config.kind == "word" else "") + text)

    def is_continuation(self, id: int) -> bool:
        """Return whether WordPiece uses an entry only inside words."""
        mark = {"wordpiece": CONTINUED, "bert": BERT_CONTINUED}.get(self.config.kind)
        return mark is not None and self._names[id].startswith(mark)

    @property
    def word_prefix(self) -> str:
        """The prefix of each chunk when it is encoded."""
        return "" if self.config.kind == "gpt2" else " "

    def chunks(self, line: str) -> list[str]:
        """Return the parts of a line, in order, that are encoded independently; they lack the ``word_prefix``."""
        if self.config.kind == "gpt2":  # encodes a first word differently
            return _BEFORE_SPACES.split(line) if line else []
        return cut(line, runs=self.config.kind != "word")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the JSON form, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each line, without BOS and EOS; ``</s>`` in text is not special.

        Raises ``DataError`` for a lone surrogate, which is not a character.
        """
        chunks = [self.chunks(line) for line in lines]
        if self._n_cached > MAX_CACHED:
            self._known.clear()
            self._n_cached = 0
        known = self._known
        new = list({chunk for line in chunks for chunk in line if chunk not in known})
        if new:
            self._n_cached += sum(map(len, new))
            try:
                known.update(zip(new, self._encode_chunks([self.word_prefix + chunk for chunk in new]), strict=True))
            except TypeError as error:  # raised by tokenizers for a str that has no UTF-8
                raise DataError(_SURROGATE) from error
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
        """Return printable tokens: a space as ``▁``, parts of a character and control characters as ``<0x..>``."""
        shown = self._shown
        return [shown[i] if i in shown else shown.setdefault(i, self._printable(i)) for i in ids]

    def _printable(self, id: int) -> str:
        text = "" if id == UNK_ID else self._bytes[id].decode("utf-8", errors="surrogateescape").replace(" ", "▁")
        shown = ""
        for character in text:
            raw = character.encode("utf-8", errors="surrogateescape")
            shown += character if character.isprintable() else "".join(f"<0x{byte:02X}>" for byte in raw)
        return shown or self._names[id]

    def bytes_of(self, id: int) -> bytes:
        """Return the UTF-8 bytes of an id, none for padding and other special entries."""
        return self._bytes[id]

    def encode_with_offsets(self, texts: list[str]) -> list[list[tuple[int, int, int]]]:
        """Return (id, begin, end) of the tokens of each text without symbols, in characters; errors as ``encode``."""
        try:
            encodings = self._engine.encode_batch(texts, add_special_tokens=False)
        except TypeError as error:
            raise DataError(_SURROGATE) from error
        return [[(id, *span) for id, span in zip(one.ids, one.offsets, strict=True)] for one in encodings]

    def normalize(self, text: str) -> str:
        """Return text as it is encoded: normalized and lower-cased if the configuration says so."""
        normalizer = self._engine.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def to_json(self) -> str:
        """Return the text of a vocabulary file. Raises ``DataError`` if it would be too long to be read again."""
        config = self.config.model_dump(mode="json")
        tree = {"format": FORMAT, "version": VERSION, "config": config, "tokenizer": self._engine_json}
        text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")) + "\n"
        if len(text.encode()) > schema.MAX_BYTES:
            what = f"the vocabulary would take more than {schema.MAX_BYTES:,} bytes"
            raise DataError(what, where="vocabulary.size", help="lower vocabulary.size")
        return text

    @staticmethod
    def from_json(text: str | bytes, *, where: str = "the vocabulary") -> Tokenizer:
        """Read the text of a vocabulary file. Raises ``RunError`` if it is damaged or of a later version."""
        raw = text.encode("utf-8", errors="surrogatepass") if isinstance(text, str) else text
        try:
            if len(raw) > schema.MAX_BYTES:
                raise ValueError("it is too long")
            tree = parse_json(raw)
            if not isinstance(tree, dict) or tree.get("format") != FORMAT or type(tree.get("version")) is not int:
                raise ValueError("the format field is missing")
            if VERSION < tree["version"] < 1000:
                raise RunError(f"{where} has version {tree['version']}", help="update attnkit")
            if tree["version"] != VERSION or tree.keys() != {"format", "version", "config", "tokenizer"}:
                raise ValueError("missing or unexpected keys")
            config = VocabularyConfig.model_validate_json(json.dumps(tree["config"]))
            return Tokenizer(config, tree["tokenizer"])
        except (ValueError, RecursionError) as error:
            raise RunError(f"{where} is not a valid attnkit vocabulary", help=_MAKE) from error

    def parts(self, chunk: str) -> list[tuple[str, int | None]]:
        """Return the parts of a chunk, its prefix included, that are encoded independently; symbols with their id."""
        if self.config.kind == "word":
            return [(chunk, self._symbols.get(chunk))]
        parts: list[tuple[str, int | None]] = []
        for part in [chunk] if self._symbol_pattern is None else filter(None, self._symbol_pattern.split(chunk)):
            if part in self._symbols:
                parts.append((part, self._symbols[part]))
            else:
                parts += [(part[i : i + MAX_CHUNK], None) for i in range(0, len(part), MAX_CHUNK)]
        return parts

    def _encode_chunks(self, chunks: list[str]) -> Iterable[list[int]]:
        long = self.config.kind != "word" and any(len(chunk) > MAX_CHUNK for chunk in chunks)
        if not self._symbols and not long:
            return (encoding.ids for encoding in self._engine.encode_batch_fast(chunks, add_special_tokens=False))
        parts = [self.parts(chunk) for chunk in chunks]
        plain = list(dict.fromkeys(part for line in parts for part, id in line if id is None))
        if long:  # one at a time, to bound memory
            ids = {part: self._engine.encode(part, add_special_tokens=False).ids for part in plain}
        else:
            encodings = self._engine.encode_batch_fast(plain, add_special_tokens=False)
            ids = {part: encoding.ids for part, encoding in zip(plain, encodings, strict=True)}
        return [[id for part, symbol in line for id in (ids[part] if symbol is None else [symbol])] for line in parts]


def load(path: Path) -> Tokenizer:
    """Read a vocabulary file. Raises ``RunError`` if it is missing or damaged."""
    try:
        raw = read_regular_file(path, schema.MAX_BYTES, follow=True)
    except FileNotFoundError as error:
        raise RunError(f"no such vocabulary file: {path}", help=_MAKE) from error
    except ValueError as error:
        what = f"no such vocabulary file: {path}" if path.is_dir() else f"{path} is not an attnkit vocabulary: {error}"
        raise RunError(what, help=_MAKE) from error
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


def symbol_pattern(symbols: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern with one group that matches the symbols, the longest first, or None without symbols."""
    longest_first = sorted(map(re.escape, symbols), key=len, reverse=True)
    return re.compile("(" + "|".join(longest_first) + ")") if longest_first else None


_PARALLELISM: list[str | None] = [None]


def _disable_parallelism() -> None:
    """Keep the threads of ``tokenizers`` out of a forked child, where they would hang, and its warning off stderr."""
    _PARALLELISM[0] = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _restore_parallelism() -> None:
    os.environ.pop("TOKENIZERS_PARALLELISM", None)
    if _PARALLELISM[0] is not None:
        os.environ["TOKENIZERS_PARALLELISM"] = _PARALLELISM[0]


os.register_at_fork(before=_disable_parallelism, after_in_parent=_restore_parallelism)


class IncrementalDecoder:
    """Incremental decoder: the concatenated results of ``add`` and ``end`` equal ``Tokenizer.decode``.

    A character split over several ids is returned with its last id.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._drops_space = tokenizer.config.kind not in ("char", "gpt2")

    def add(self, ids: Iterable[int]) -> str:
        """Return the characters that these ids complete."""
        return self._without_prefix(self._decoder.decode(b"".join(map(self._tokenizer.bytes_of, ids))))

    def end(self) -> str:
        """Return the rest: U+FFFD for a character that was never completed."""
        return self._without_prefix(self._decoder.decode(b"", final=True))

    def _without_prefix(self, text: str) -> str:
        if text and self._drops_space:
            self._drops_space = False
            return text.removeprefix(" ")
        return text


def encode_masked(tokenizer: Tokenizer, line: str, mask: str) -> list[int]:
    """Return the ids of a line, without begin or end, with the id of ``mask`` where it occurs in the line.

    A mask takes the place of one token. If tokens contain the space before them, so does the mask; among whole words
    it is a word of its own, also without spaces around it; among single characters spaces around it stay.
    """
    kind = tokenizer.config.kind
    if kind == "word" and mask in line:
        words = [word for part in line.split(mask) for word in (part.strip(" "), mask) if word]
        line = " ".join(words[:-1])
    elif kind not in ("char", "bert"):
        line = re.sub(rf" +(?={re.escape(mask)})", "", line)
    ids = tokenizer.encode([line])[0]
    id = tokenizer.token_id(mask)
    if line.startswith(mask) and id in ids and kind != "char":
        del ids[: ids.index(id)]  # the space before the line, alone
    return ids


def fill_masks(tokenizer: Tokenizer, line: str, mask: str, ids: Sequence[int | None]) -> str:
    """Replace the masks of a line by tokens, with the spaces they contain; None keeps the mask."""
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
