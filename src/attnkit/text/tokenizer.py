"""Tokenizer: text to ids and back, for every kind of vocabulary."""

from __future__ import annotations

import codecs
import copy
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.errors import DataError, RunError, SystemFailure
from attnkit.io.safe_read import parse_json, read_regular_file
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text import vocabulary_schema as schema
from attnkit.text.config import VocabularyConfig, symbol_pattern
from attnkit.text.vocabulary_schema import BERT_CONTINUED, CONTINUED, UNUSED, build

if TYPE_CHECKING:
    from attnkit.text.origin import Origin
    from attnkit.text.piece_vocabulary import PieceVocabulary

FORMAT = "attnkit vocabulary"
VERSION = 1
MAX_CACHED = 2_000_000  #: characters of cached chunks above which the cache is cleared (about 80 MB)
MAX_CHUNK = 1 << 16  #: maximum length of text without spaces that is encoded at once, to bound memory

_MAKE = "create one: attnkit vocab FILE... -o vocab.json"
_SURROGATE = "the text contains a lone surrogate (U+D800 to U+DFFF), which is not a character"
_SPACED = re.compile(r" +[^ ]*")
_BEFORE_SPACES = re.compile(r"(?<=\S)(?= )")  #: word starts in the vocabulary of GPT-2


class KnownChunks:
    """Cache of the ids of chunks, by the language code before them; empty for no code."""

    def __init__(self) -> None:
        self.by_code: dict[str, dict[str, list[int]]] = {}
        self.n_characters = 0

    def of(self, code: str) -> dict[str, list[int]]:
        """Return the ids of chunks with a code, to be added to; forget too many."""
        if self.n_characters > MAX_CACHED:  # a thread that encodes keeps what it has got from here
            self.by_code, self.n_characters = {}, 0
        return self.by_code.setdefault(code, {})


class Tokenizer:
    """Tokenizer of a vocabulary, created by ``train_vocabulary`` or ``load``."""

    def __init__(self, config: VocabularyConfig, engine: dict[str, Any], origin: Origin | None = None) -> None:
        """Check and store the parts; raise ``ValueError`` if they are inconsistent.

        Args:
            config: The settings with which the vocabulary was trained.
            engine: A tokenizer in the JSON form of Hugging Face ``tokenizers``, without added tokens; the first
                ids are the special entries and the symbols. For kind ``sentencepiece``, see ``piece_vocabulary``.
            origin: Where an imported vocabulary comes from.
        """
        self.config, self.origin = config, origin
        self._engine_json = engine
        #: SentencePiece model and ids of an imported network; None for other kinds
        self.pieces: PieceVocabulary | None = None
        self._bytes: list[bytes]
        if config.kind == "sentencepiece":
            from attnkit.text.piece_vocabulary import PieceVocabulary  # imported here: most runs have none

            self.pieces = PieceVocabulary(config, engine)
            self._names, self._bytes = self.pieces.names, self.pieces.bytes
        else:
            self._names = schema.validate(config, engine)
            self._engine = build(engine)
            self._bytes = schema.token_bytes(config, self._names)
        # in a word vocabulary, a symbol is a word, and each word starts with a space
        space = " " if config.kind == "word" else ""
        self._symbols = {space + symbol: len(SPECIALS) + i for i, symbol in enumerate(config.symbols)}
        self._symbol_pattern = None if config.kind == "word" else symbol_pattern(config.symbols)
        self._shown: dict[int, str] = {}
        self._known = KnownChunks()  # shared, as the next, by the tokenizers of ``with_code``
        self._of_codes: dict[str, Tokenizer] = {}

    @property
    def vocab_size(self) -> int:
        """Number of entries; ids range from 0 to ``vocab_size - 1``."""
        return len(self._names)

    @property
    def names(self) -> list[str]:
        """Names of the entries in id order: of text, in the alphabet of the kind."""
        return list(self._names)

    @property
    def model(self) -> dict[str, Any]:
        """Entries and merges, in the JSON form of Hugging Face ``tokenizers``."""
        model: dict[str, Any] = self._engine_json["model"]
        return model

    def pieces_of(self, word: str) -> list[str]:
        """Return the entries of a word in the alphabet of the kind, as it is split off."""
        return [token.value for token in self._engine.model.tokenize(word)]

    @cached_property
    def n_unused(self) -> int:
        """Number of unused entries, which only round up the vocabulary size."""
        if self.pieces is not None:
            return self.pieces.n_unused
        return sum(UNUSED.fullmatch(name) is not None for name in self._names)

    @property
    def n_words(self) -> int:
        """Number of entries in use; later ids are unused."""
        return self.vocab_size - self.n_unused

    def token_id(self, text: str) -> int | None:
        """Return the id of a symbol, or None for any other text."""
        id = self._symbols.get((" " if self.config.kind == "word" else "") + text)
        return self.pieces.symbol_ids.get(text) if id is None and self.pieces is not None else id

    @property
    def symbol_ids(self) -> range:
        """Ids of the symbols of the configuration, which lacks those added to pieces."""
        return range(len(SPECIALS), len(SPECIALS) + len(self._symbols))

    def is_symbol(self, id: int) -> bool:
        """Return whether an id is a symbol, also one added to pieces."""
        return id in self.symbol_ids or (self.pieces is not None and id in self.pieces.symbol_numbers)

    @property
    def code_ids(self) -> list[int]:
        """Id of the language code before every text; empty for most vocabularies."""
        return [] if self.pieces is None else self.pieces.code_ids

    @property
    def language_codes(self) -> tuple[str, ...]:
        """Codes of the languages of an imported model; empty for most vocabularies."""
        return () if self.pieces is None else self.pieces.language_codes

    def with_code(self, code: str) -> Tokenizer:
        """Return the tokenizer of the same entries with another code before texts.

        There is one per code, and all of them share a cache. Raises ``ValueError`` if the code is not among
        ``language_codes``.
        """
        if self.pieces is None:
            raise ValueError("the vocabulary has no language codes")
        if code == self.pieces.code:
            return self
        if code not in self._of_codes:
            other = copy.copy(self)
            other.pieces, other._engine_json = self.pieces.with_code(code), {**self._engine_json, "code": code}
            self._of_codes.setdefault(self.pieces.code or "", self)
            self._of_codes.setdefault(code, other)  # another thread may have been first
        return self._of_codes[code]

    def is_continuation(self, id: int) -> bool:
        """Return whether an entry is a WordPiece continuation, used only inside words."""
        mark = {"wordpiece": CONTINUED, "bert": BERT_CONTINUED}.get(self.config.kind)
        return mark is not None and self._names[id].startswith(mark)

    @property
    def word_prefix(self) -> str:
        """Prefix of each chunk for encoding: a space, or nothing for imported kinds."""
        return "" if self.config.kind in ("gpt2", "llama3", "sentencepiece") else " "

    def chunks(self, line: str) -> list[str]:
        """Split a line into independently encoded chunks, without ``word_prefix``."""
        if self.config.kind in ("gpt2", "llama3"):  # encodes the first word differently
            return _BEFORE_SPACES.split(line) if line else []
        if self.config.kind == "sentencepiece":  # normalizes the whole line
            return [line] if line or self.code_ids else []
        return cut(line, runs=self.config.kind != "word")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the JSON form without the origin, in hexadecimal."""
        return hashlib.sha256(self._json().encode()).hexdigest()

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each line, without BOS and EOS.

        A ``</s>`` in the text is not special. Raises ``DataError`` for a lone surrogate, which is not a character.
        """
        chunks = [self.chunks(line) for line in lines]
        known = self._known.of("" if self.pieces is None else self.pieces.code or "")
        new = list({chunk for line in chunks for chunk in line if chunk not in known})
        if new:
            self._known.n_characters += sum(map(len, new))
            try:
                known.update(zip(new, self._encode_chunks([self.word_prefix + chunk for chunk in new]), strict=True))
            except TypeError as error:  # raised by tokenizers for a str that UTF-8 cannot encode
                raise DataError(_SURROGATE) from error
        encoded = []
        for line in chunks:
            ids: list[int] = []
            for chunk in line:
                ids += known[chunk]
            encoded.append(ids)
        if self.config.kind == "char":  # the space before the line is a separate token
            return [ids[1:] for ids in encoded]
        return encoded

    def encode_chunks(self, chunks: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each chunk (see ``chunks``); no id is cached."""
        return list(self._encode_chunks([self.word_prefix + chunk for chunk in chunks]))

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Decode sequences, skipping padding, BOS and EOS; unknown ids become ``<unk>``."""
        table = self._bytes
        texts = [b"".join([table[i] for i in line]).decode("utf-8", errors="replace") for line in ids]
        n = self.n_dropped_spaces
        if n is None:
            return [text.lstrip(" ") for text in texts]
        return [text[n:] if n and text.startswith(" ") else text for text in texts]

    @property
    def n_dropped_spaces(self) -> int | None:
        """Most spaces at the start of a decoded text that are not part of it; None: all."""
        if self.pieces is not None:
            return self.pieces.n_dropped_spaces
        return 0 if self.config.kind in ("char", "gpt2", "llama3") else 1

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return printable tokens: spaces as ``▁``, unprintable bytes as ``<0x..>``."""
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
        """Return the UTF-8 bytes of an id; empty for padding, BOS, EOS and unused ids."""
        return self._bytes[id]

    def encode_with_offsets(self, texts: list[str]) -> list[list[tuple[int, int, int]]]:
        """Return (id, begin, end) per token, in characters, for texts without symbols."""
        try:
            if self.pieces is not None:
                return list(map(self.pieces.encode_with_offsets, texts))
            encodings = self._engine.encode_batch(texts, add_special_tokens=False)
        except TypeError as error:
            raise DataError(_SURROGATE) from error
        return [[(id, *span) for id, span in zip(one.ids, one.offsets, strict=True)] for one in encodings]

    def normalize(self, text: str) -> str:
        """Return the text that is encoded: normalized and lower-cased as configured."""
        if self.pieces is not None:
            return self.pieces.normalize(text)
        normalizer = self._engine.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def to_json(self) -> str:
        """Return the text of a vocabulary file; raise ``DataError`` if it is too large."""
        text = self._json({} if self.origin is None else {"origin": self.origin.to_tree()})
        if len(text.encode()) > schema.MAX_BYTES:
            what = f"the vocabulary would take more than {schema.MAX_BYTES:,} bytes"
            raise DataError(what, where="vocabulary.size", help="lower vocabulary.size")
        return text

    def _json(self, others: dict[str, Any] | None = None) -> str:
        # Without a sample, files and fingerprints are those of versions that knew none.
        whole = {"sample_lines", "sample_seed"} if self.config.sample_lines is None else None
        config = self.config.model_dump(mode="json", exclude=whole)
        tree = {"format": FORMAT, "version": VERSION, "config": config, "tokenizer": self._engine_json}
        return json.dumps(tree | (others or {}), ensure_ascii=False, separators=(",", ":")) + "\n"

    @staticmethod
    def from_json(text: str | bytes, *, where: str = "the vocabulary") -> Tokenizer:
        """Parse a vocabulary file; raise ``RunError`` if it is damaged or too new."""
        raw = text.encode("utf-8", errors="surrogatepass") if isinstance(text, str) else text
        try:
            if len(raw) > schema.MAX_BYTES:
                raise ValueError("it is too long")
            tree = parse_json(raw)
            if not isinstance(tree, dict) or tree.get("format") != FORMAT or type(tree.get("version")) is not int:
                raise ValueError("the format field is missing")
            if VERSION < tree["version"] < 1000:
                raise RunError(f"{where} has version {tree['version']}, which is too new", help="update attnkit")
            if tree["version"] != VERSION or tree.keys() - {"origin"} != {"format", "version", "config", "tokenizer"}:
                raise ValueError("missing or unexpected keys")
            config = VocabularyConfig.model_validate_json(json.dumps(tree["config"]))
            found = Tokenizer(config, tree["tokenizer"])
            if "origin" in tree:
                from attnkit.text.origin import Origin  # imported here: most runs have none

                found.origin = Origin.from_tree(tree["origin"], found.vocab_size)
            return found
        except (ValueError, RecursionError) as error:
            raise RunError(f"{where} is not a valid attnkit vocabulary", help=_MAKE) from error

    def parts(self, chunk: str) -> list[tuple[str, int | None]]:
        """Split a prefixed chunk into text to encode (id None) and symbols with their id."""
        if self.pieces is not None:
            return self.pieces.parts(chunk)
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
        if self.pieces is not None:
            return self.pieces.encode_lines(chunks)
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
    """Load a vocabulary file; raise ``RunError`` if it is missing or damaged."""
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
    """Split a line before each run of spaces (or each space), and drop one space each."""
    if not line:
        return []
    if runs and ("  " in line or line[0] == " "):
        return [chunk[1:] for chunk in _SPACED.findall(" " + line)]
    return line.split(" ")


_PARALLELISM: list[str | None] = [None]


def _disable_parallelism() -> None:
    """Disable ``tokenizers`` threads, which hang in a forked child, and their warning."""
    _PARALLELISM[0] = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _restore_parallelism() -> None:
    os.environ.pop("TOKENIZERS_PARALLELISM", None)
    if _PARALLELISM[0] is not None:
        os.environ["TOKENIZERS_PARALLELISM"] = _PARALLELISM[0]


os.register_at_fork(before=_disable_parallelism, after_in_parent=_restore_parallelism)


class IncrementalDecoder:
    """Incremental decoder whose concatenated results equal ``Tokenizer.decode``.

    A character split over several ids is returned with the last of them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._n_dropped = tokenizer.n_dropped_spaces

    def add(self, ids: Iterable[int]) -> str:
        """Return the characters that these ids complete."""
        return self._without_prefix(self._decoder.decode(b"".join(map(self._tokenizer.bytes_of, ids))))

    def end(self) -> str:
        """Return the rest: U+FFFD for an incomplete character."""
        return self._without_prefix(self._decoder.decode(b"", final=True))

    def _without_prefix(self, text: str) -> str:
        if text and self._n_dropped is None:
            if not (text := text.lstrip(" ")):
                return ""
            self._n_dropped = 0
        elif text and self._n_dropped:
            self._n_dropped = 0
            return text.removeprefix(" ")
        return text
