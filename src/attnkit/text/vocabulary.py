"""Vocabulary training, reproducible on any number of cores, and statistics.

The trainers of ``tokenizers`` ignore signals, so for large texts they run in a subprocess, which can be killed. Text
and vocabulary are sent through pipes. The subprocess ends with its parent, whatever the cause.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
from tokenizers import trainers

from attnkit.errors import AttnkitError, DataError, RunError, SystemFailure, UsageError
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.runtime.children import end_with_parent, python_command
from attnkit.runtime.signals import defer_signals
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import TrainedKind, VocabularyConfig, symbol_pattern
from attnkit.text.lines import read_lines
from attnkit.text.tokenizer import Tokenizer, cut
from attnkit.text.vocabulary_schema import BYTE_OF, CHARACTERS, CONTINUED

BATCH = 4096  #: lines encoded at once


@dataclass
class Statistics:
    """Statistics of files encoded with a vocabulary."""

    n_lines: int = 0
    n_words: int = 0  #: number of words, separated by white space
    n_characters: int = 0  #: number of characters after normalization, including a space before each line
    n_covered: int = 0  #: characters contained in a single token; all others are encoded as bytes or unknown
    n_tokens: int = 0
    n_unknown: int = 0
    longest: int = 0  #: number of tokens of the longest line
    longest_path: str | None = None
    longest_line: int | None = None  #: number of the longest line in its file, counted from 1

    @property
    def coverage(self) -> float:
        """Share of the characters encoded without single bytes and ``<unk>``."""
        return min(1.0, self.n_covered / self.n_characters) if self.n_characters else 1.0

    @property
    def tokens_per_word(self) -> float:
        """Tokens per word."""
        return self.n_tokens / self.n_words if self.n_words else 0.0

    @property
    def unknown_rate(self) -> float:
        """Share of the tokens that are unknown."""
        return self.n_unknown / self.n_tokens if self.n_tokens else 0.0


def statistics(tokenizer: Tokenizer, files: Sequence[Path]) -> Statistics:
    """Encode files and count tokens, words and characters, in bounded memory."""
    stats = Statistics()
    uses = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    space = 0 if tokenizer.config.kind == "char" else 1
    plain = tokenizer.config.normalize == "none" and not tokenizer.config.lowercase
    for path in files:
        n_before = stats.n_lines
        reader = read_lines(path)
        while lines := list(islice(reader, BATCH)):
            encoded = tokenizer.encode(lines)
            flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int64)
            uses += np.bincount(flat, minlength=tokenizer.vocab_size)
            stats.n_words += sum(len(line.split()) for line in lines)
            seen = lines if plain else map(tokenizer.normalize, lines)
            stats.n_characters += sum(len(line) + space for line in seen if line)
            sizes = [len(ids) for ids in encoded]
            if max(sizes) > stats.longest:
                stats.longest, stats.longest_path = max(sizes), str(path)
                stats.longest_line = stats.n_lines - n_before + sizes.index(stats.longest) + 1
            stats.n_lines += len(lines)
    whole = [len(tokenizer.bytes_of(id).decode("utf-8", errors="ignore")) for id in range(tokenizer.vocab_size)]
    whole[UNK_ID] = 0
    stats.n_tokens, stats.n_unknown = int(uses.sum()), int(uses[UNK_ID])
    stats.n_covered = int(uses @ np.array(whole, dtype=np.int64))
    return stats


MAX_DISTINCT = 1_000_000  #: distinct chunks above which those seen once are dropped, to bound memory
AT_ONCE = 250_000  #: characters that the trainers of ``tokenizers`` process in well under a second
_MAX_WORD_LENGTH = 1000
_LONG_WORD = re.compile(rf"[^ ]{{{_MAX_WORD_LENGTH}}}(?=[^ ])")


def train_vocabulary(text: Sequence[Path] | Iterable[str], config: VocabularyConfig) -> Tokenizer:
    """Train a vocabulary on files or lines; a signal can interrupt it at any time.

    Raises ``DataError`` for empty text, invalid UTF-8 and a vocabulary too large for a file; ``UsageError`` if
    ``config.kind`` cannot be trained or ``config.size`` is too small for the required entries.
    """
    if config.kind not in get_args(TrainedKind):
        what = f"a vocabulary of kind {config.kind} can only be imported (attnkit import)"
        raise UsageError(what, where="vocabulary.kind", help=f"choose one of {', '.join(get_args(TrainedKind))}")
    lines = _lines(text, config)
    head: list[str] = []
    if config.kind in ("bpe", "wordpiece"):  # the trainer is one call that ignores signals
        n_characters = 0
        for line in lines:
            head.append(line)
            n_characters += len(line)
            if n_characters > AT_ONCE:
                return Tokenizer.from_json(_train_in_subprocess(chain(head, lines), config))
    return train_in_process(chain(head, lines), config)


def train_in_process(lines: Iterator[str], config: VocabularyConfig) -> Tokenizer:
    """Train on non-blank lines in this process; raise like ``train_vocabulary``."""
    first = next(lines, None)
    if first is None:
        raise DataError("no text to build a vocabulary from", help="give a non-empty file")
    fixed = [*SPECIALS, *(f"<symbol{i}>" for i in range(len(config.symbols)))]
    n_bytes = {"word": 0, "wordpiece": 512}.get(config.kind, 256) if config.byte_fallback else 0
    if config.size < len(fixed) + n_bytes:
        raise _too_small(config, len(fixed) + n_bytes, "with byte fallback")
    most = max(n_bytes, config.size - config.size % config.multiple_of - len(fixed))
    merges: list[list[str]] = []
    scores: dict[str, float] = {}
    if config.kind == "unigram":
        scores = _train_unigram(chain([first], lines), config, most)
        entries = list(scores)
    elif config.kind in ("bpe", "wordpiece"):
        entries, merges = _train_subwords(chain([first], lines), config, most)
    else:
        entries = _frequent_texts(chain([first], lines), config, most)
    if len(entries) > most:
        raise _too_small(config, len(fixed) + len(entries), "for this text without byte fallback")
    names = fixed + entries
    names += [f"<unused{i}>" for i in range(-len(names) % config.multiple_of)]
    model = engine.model_of(config, {name: id for id, name in enumerate(names)}, merges)
    if config.kind == "unigram":
        model["vocab"] = [(name, scores.get(name, 0.0)) for name in names]
    try:
        return Tokenizer(config, engine.pipeline(config, model))
    except ValueError as error:
        what = f"the trained vocabulary is invalid: {error}"
        raise DataError(what, where="vocabulary.size", help="lower vocabulary.size") from error


def _lines(text: Sequence[Path] | Iterable[str], config: VocabularyConfig) -> Iterator[str]:
    """Yield the non-blank lines without symbols; spaces split very long words."""
    pattern = None if config.kind == "word" else symbol_pattern(config.symbols)
    for item in text:
        for line in read_lines(item) if isinstance(item, Path) else (item,):
            if line and not line.isspace():
                # training time is quadratic in the length of a word
                short = len(line) <= _MAX_WORD_LENGTH or config.kind == "word"
                kept = line if short else _LONG_WORD.sub(r"\g<0> ", line)
                yield kept if pattern is None else pattern.sub(" ", kept)


def _too_small(config: VocabularyConfig, smallest: int, when: str) -> UsageError:
    what = f"a vocabulary of kind {config.kind} needs at least {smallest} entries {when}, not {config.size}"
    help = f"use at least {smallest}" + (", or disable byte fallback" if config.byte_fallback else "")
    return UsageError(what, where="vocabulary.size", help=help)


def _train_subwords(lines: Iterator[str], config: VocabularyConfig, most: int) -> tuple[list[str], list[list[str]]]:
    """Return the entries and merges of ``bpe`` or ``wordpiece``."""
    # The 512 byte entries of WordPiece are given and come first; the trainer would number them in hash-map order.
    base = [*CHARACTERS, *(CONTINUED + character for character in CHARACTERS)]
    seen = {" "}

    def noted() -> Iterator[str]:
        for line in lines:
            if config.kind == "wordpiece":
                seen.update(line)
            yield " " + line

    trainer: Any
    settings: dict[str, Any] = {"min_frequency": config.min_frequency, "show_progress": False}
    if config.kind == "bpe":
        alphabet = CHARACTERS if config.byte_fallback else []
        trainer = trainers.BpeTrainer(vocab_size=most, initial_alphabet=alphabet, **settings)
    else:
        settings |= {"special_tokens": base, "continuing_subword_prefix": CONTINUED}
        trainer = trainers.WordPieceTrainer(vocab_size=most + len(base), **settings)
    trained = engine.build(engine.pipeline(config, engine.model_of(config, {}, [])))
    trained.train_from_iterator(noted(), trainer)
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if config.kind == "bpe":
        return pieces, model["merges"]
    pieces = [piece for piece in pieces if len(piece.removeprefix(CONTINUED)) > 1]
    if not config.byte_fallback:
        bytes_seen = {CHARACTERS[byte] for byte in "".join(seen).encode()}
        base = [entry for entry in base if entry[-1] in bytes_seen]
    return base + pieces[: max(0, most - len(base))], []


def _train_unigram(lines: Iterator[str], config: VocabularyConfig, most: int) -> dict[str, float]:
    from attnkit.text.unigram import train_unigram

    counts = {bytes(map(BYTE_OF.__getitem__, word)): n for word, n in count_words(lines, config).items()}
    seen = set(range(256)) if config.byte_fallback else {byte for word in counts for byte in word}
    return {
        "".join(CHARACTERS[byte] for byte in piece.text): piece.score
        for piece in train_unigram(counts, most + 256 - len(seen), config.min_frequency)
        if len(piece.text) > 1 or piece.text[0] in seen
    }


def _frequent_texts(lines: Iterator[str], config: VocabularyConfig, most: int) -> list[str]:
    """Return the entries of ``word`` or ``char`` by frequency, ties by code point."""
    base: list[str] = []
    if config.kind == "word":
        counts = count_words(lines, config)
        for symbol in config.symbols:
            counts.pop(" " + symbol, None)
    else:
        normalizer = engine.build(engine.pipeline(config, engine.NO_WORDS)).normalizer
        counts = Counter()
        for line in lines:
            counts.update(line if normalizer is None else normalizer.normalize_str(line))
        base = [f"<0x{byte:02X}>" for byte in range(256)] if config.byte_fallback else []
    frequent = [text for text, n in counts.items() if n >= config.min_frequency]
    return base + sorted(frequent, key=lambda text: (-counts[text], text))[: max(0, most - len(base))]


def count_words(lines: Iterator[str], config: VocabularyConfig) -> Counter[str]:
    """Count the words, which are split and normalized as for the model."""
    chunks: Counter[str] = Counter()
    for line in lines:
        chunks.update(cut(line, runs=config.kind != "word"))
        if len(chunks) > MAX_DISTINCT:
            chunks = Counter({chunk: n for chunk, n in chunks.items() if n > 1})
    bare = engine.build(engine.pipeline(config, engine.NO_WORDS))
    counts: Counter[str] = Counter()
    for chunk, n in chunks.items():
        text = " " + chunk if bare.normalizer is None else bare.normalizer.normalize_str(" " + chunk)
        for word, _ in bare.pre_tokenizer.pre_tokenize_str(text):
            counts[word] += n
    return counts


# Neither byte occurs in UTF-8, so they can follow any line.
_LINE_END, _TEXT_END = b"\xff", b"\xfe"
_CHUNK = 1000  # lines sent at once
_BLOCK = 1 << 20
_ERRORS: dict[str, type[AttnkitError]] = {e.__name__: e for e in (DataError, RunError, SystemFailure, UsageError)}
_PROGRAM = "from attnkit.text.vocabulary import serve; serve(int(sys.argv[1]))"


def _train_in_subprocess(lines: Iterable[str], config: VocabularyConfig) -> str:
    """Train a vocabulary in a subprocess; return its JSON form or raise its error.

    An exception in this process kills the subprocess. Raises ``SystemFailure`` if a signal ends the subprocess.
    """
    command = python_command(_PROGRAM, str(os.getpid()))
    process: subprocess.Popen[bytes] | None = None
    try:
        with defer_signals():
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the subprocess failed; its answer says why
            process.stdin.write(config.model_dump_json().encode() + b"\n")
            rows = iter(lines)
            while chunk := list(islice(rows, _CHUNK)):
                process.stdin.write(b"".join(line.encode("utf-8", "surrogatepass") + _LINE_END for line in chunk))
            process.stdin.write(_TEXT_END)
            process.stdin.flush()
        answer = process.stdout.read()
        code = process.wait()
    finally:
        if process is not None:
            with contextlib.suppress(OSError), process:  # closes the pipes and waits
                process.kill()
    if code < 0:
        help = "if it ran out of memory, build the vocabulary from fewer lines (attnkit vocab) and pass it with --vocab"
        raise SystemFailure(f"the vocabulary training process was killed by {signal.Signals(-code).name}", help=help)
    if code:
        raise RuntimeError("the vocabulary training process failed")
    result = json.loads(answer)
    if "error" in result:
        raise _ERRORS[result["error"]](result["what"], where=result["where"], help=result["help"])
    return str(result["vocabulary"])


def _receive(stream: BufferedReader) -> Iterator[str]:
    """Yield lines as they arrive; exit if the sender closes the pipe early."""

    def end_with_sender() -> None:
        os.read(0, 1)  # returns when the parent closes the pipe
        os._exit(1)

    rest = b""
    while block := stream.read1(_BLOCK):
        *lines, rest = (rest + block).split(_LINE_END)
        for line in lines:
            yield line.decode("utf-8", "surrogatepass")
        if rest == _TEXT_END:
            threading.Thread(target=end_with_sender, daemon=True).start()
            return
    os._exit(1)


def serve(parent: int) -> None:
    """Run the subprocess: read configuration and text from stdin, answer on stdout."""
    end_with_parent(parent)
    source = cast(BufferedReader, sys.stdin.buffer)
    config = VocabularyConfig.model_validate_json(source.readline())
    answer: dict[str, str | None]
    try:
        answer = {"vocabulary": train_in_process(_receive(source), config).to_json()}
    except tuple(_ERRORS.values()) as error:
        answer = {"error": type(error).__name__, "what": error.what, "where": error.where, "help": error.help}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()
    os._exit(0)  # a normal exit would wait for the thread that reads the pipe
