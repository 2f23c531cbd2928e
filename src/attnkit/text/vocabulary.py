"""Vocabulary training, reproducible on any number of cores.

A large text is counted chunk by chunk in compiled loops, and the counts are trained on. Without numba, the trainers of
``tokenizers`` read all of it, with the same result. They ignore signals, so they run in a subprocess, which can be
killed. Text and vocabulary are sent through pipes. The subprocess ends with its parent, whatever the cause.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from tokenizers import trainers

from attnkit.errors import AttnkitError, DataError, RunError, SystemFailure, UsageError
from attnkit.protocols import SPECIALS
from attnkit.runtime.signals import defer_signals, end_with_parent, python_command
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import TrainedKind, VocabularyConfig
from attnkit.text.files import is_stream
from attnkit.text.lines import read_lines
from attnkit.text.sources import source_size
from attnkit.text.tokenizer import Tokenizer, cut
from attnkit.text.vocabulary_schema import BYTE_OF, CHARACTERS, CONTINUED
from attnkit.text.word_splits import AT_ONCE as CHUNKS_AT_ONCE
from attnkit.text.word_splits import MAX_DISTINCT, LineFilter, add_words, split_chunks

if TYPE_CHECKING:
    from attnkit.text.chunk_counts import TextCounts

AT_ONCE = 250_000  #: characters that the trainers of ``tokenizers`` process in well under a second


def train_vocabulary(text: Sequence[Path] | Iterable[str], config: VocabularyConfig) -> Tokenizer:
    """Train a vocabulary on files or lines; a signal can interrupt it at any time.

    Raises ``DataError`` for empty text, invalid UTF-8 and a vocabulary too large for a file; ``UsageError`` if
    ``config.kind`` cannot be trained or ``config.size`` is too small for the required entries.
    """
    if config.kind not in get_args(TrainedKind):
        what = f"a vocabulary of kind {config.kind} can only be imported (attnkit import)"
        raise UsageError(what, where="vocabulary.kind", help=f"choose one of {', '.join(get_args(TrainedKind))}")
    if config.sample_lines is not None:
        from attnkit.text.line_sample import sample_lines  # imported here: most vocabularies need no sample

        text = sample_lines(text, config.sample_lines, config.sample_seed)
    head, n_characters = [], 0
    items: Iterator[Path | str] = iter(text)
    for item in items:
        head.append(item)
        n_characters += _size(item)
        if n_characters > AT_ONCE:
            break
    whole = chain(head, items)
    if n_characters <= AT_ONCE:
        return train_in_process(_lines(whole, config), config)
    if has_counting():
        from attnkit.text.chunk_counts import TextCounts  # imported here: small texts need no loops

        counts = TextCounts(config)
        counts.add(whole)
        counts.finish()
        return _train(counts if counts.n_lines else None, config)
    if config.kind in ("bpe", "wordpiece"):  # the trainer is one call that ignores signals
        return Tokenizer.from_json(_train_in_subprocess(_lines(whole, config), config))
    return train_in_process(_lines(whole, config), config)


def has_counting() -> bool:
    """Return whether numba can compile the loops of counting and merging."""
    from attnkit.kernels import chunks, merges, words  # imported here: small texts need no loops

    return None not in (chunks.compiled_loop(), words.compiled_loops(), merges.compiled_loops())


def train_in_process(lines: Iterator[str], config: VocabularyConfig) -> Tokenizer:
    """Train on non-blank lines in this process; raise like ``train_vocabulary``."""
    first = next(lines, None)
    return _train(None if first is None else chain([first], lines), config)


def _size(item: Path | str) -> int:
    """Return the size of a line or file; of a pipe, more than any limit."""
    if isinstance(item, str):
        return len(item)
    with contextlib.suppress(OSError, ValueError, AttnkitError):  # the reader reports it
        return AT_ONCE + 1 if is_stream(item) else source_size(item)
    return 0


def _train(text: TextCounts | Iterator[str] | None, config: VocabularyConfig) -> Tokenizer:
    """Train on counted words or on lines; None is a text without any."""
    if text is None:
        raise DataError("no text to build a vocabulary from", help="give a non-empty file")
    fixed = [*SPECIALS, *(f"<symbol{i}>" for i in range(len(config.symbols)))]
    n_bytes = {"word": 0, "wordpiece": 512}.get(config.kind, 256) if config.byte_fallback else 0
    if config.size < len(fixed) + n_bytes:
        raise _too_small(config, len(fixed) + n_bytes, "with byte fallback")
    most = max(n_bytes, config.size - config.size % config.multiple_of - len(fixed))
    merges: list[list[str]] = []
    scores: dict[str, float] = {}
    if config.kind == "unigram":
        scores = _train_unigram(_counts(text, config), config, most)
        entries = list(scores)
    elif config.kind in ("bpe", "wordpiece"):
        entries, merges = _train_subwords(text, config, most)
    else:
        entries = _frequent_texts(_counts(text, config), config, most)
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


def _lines(text: Iterable[Path | str], config: VocabularyConfig) -> Iterator[str]:
    """Yield what is trained on of each line of files or of each line."""
    kept = LineFilter(config)
    for item in text:
        yield from kept(read_lines(item) if isinstance(item, Path) else (item,))


def _too_small(config: VocabularyConfig, smallest: int, when: str) -> UsageError:
    what = f"a vocabulary of kind {config.kind} needs at least {smallest} entries {when}, not {config.size}"
    help = f"use at least {smallest}" + (", or disable byte fallback" if config.byte_fallback else "")
    return UsageError(what, where="vocabulary.size", help=help)


def _train_subwords(
    text: TextCounts | Iterator[str], config: VocabularyConfig, most: int
) -> tuple[list[str], list[list[str]]]:
    """Return the entries and merges of ``bpe`` or ``wordpiece``."""
    # The 512 byte entries of WordPiece are given and come first; the trainer would number them in hash-map order.
    base = [*CHARACTERS, *(CONTINUED + character for character in CHARACTERS)]
    alphabet = CHARACTERS if config.byte_fallback else []
    characters = {" "}  # of the text
    if not isinstance(text, Iterator):
        from attnkit.text.byte_pairs import merge_words  # imported here: small texts need no loops

        characters |= text.characters
        if config.kind == "bpe":
            first = sorted({*alphabet, *chain.from_iterable(text.counts)})
            pieces, pairs = merge_words(text.counts, first, most, config.min_frequency)
        else:
            pieces, pairs = merge_words(text.counts, base, most + len(base), config.min_frequency, CONTINUED)
        merges = list(map(list, pairs))
    else:

        def noted() -> Iterator[str]:
            for line in text:
                if config.kind == "wordpiece":
                    characters.update(line)
                yield " " + line

        trainer: Any
        settings: dict[str, Any] = {"min_frequency": config.min_frequency, "show_progress": False}
        if config.kind == "bpe":
            trainer = trainers.BpeTrainer(vocab_size=most, initial_alphabet=alphabet, **settings)
        else:
            settings |= {"special_tokens": base, "continuing_subword_prefix": CONTINUED}
            trainer = trainers.WordPieceTrainer(vocab_size=most + len(base), **settings)
        trained = engine.build(engine.pipeline(config, engine.model_of(config, {}, [])))
        trained.train_from_iterator(noted(), trainer)
        model = json.loads(trained.to_str())["model"]
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        merges = model.get("merges", [])
    if config.kind == "bpe":
        return pieces, merges
    pieces = [piece for piece in pieces if len(piece.removeprefix(CONTINUED)) > 1]
    if not config.byte_fallback:
        bytes_seen = {CHARACTERS[byte] for byte in "".join(characters).encode()}
        base = [entry for entry in base if entry[-1] in bytes_seen]
    return base + pieces[: max(0, most - len(base))], []


def _train_unigram(words: Counter[str], config: VocabularyConfig, most: int) -> dict[str, float]:
    from attnkit.text.unigram import train_unigram

    counts = {bytes(map(BYTE_OF.__getitem__, word)): n for word, n in words.items()}
    seen = set(range(256)) if config.byte_fallback else {byte for word in counts for byte in word}
    return {
        "".join(CHARACTERS[byte] for byte in piece.text): piece.score
        for piece in train_unigram(counts, most + 256 - len(seen), config.min_frequency)
        if len(piece.text) > 1 or piece.text[0] in seen
    }


def _frequent_texts(counts: Counter[str], config: VocabularyConfig, most: int) -> list[str]:
    """Return the entries of ``word`` or ``char`` by frequency, ties by code point."""
    base: list[str] = []
    if config.kind == "word":
        for symbol in config.symbols:
            counts.pop(" " + symbol, None)
    else:
        base = [f"<0x{byte:02X}>" for byte in range(256)] if config.byte_fallback else []
    frequent = [text for text, n in counts.items() if n >= config.min_frequency]
    return base + sorted(frequent, key=lambda text: (-counts[text], text))[: max(0, most - len(base))]


def _counts(text: TextCounts | Iterator[str], config: VocabularyConfig) -> Counter[str]:
    """Return the counts of words, or of kind ``char`` those of characters."""
    if not isinstance(text, Iterator):
        return text.counts
    if config.kind != "char":
        return count_words(text, config)
    normalizer = engine.build(engine.pipeline(config, engine.NO_WORDS)).normalizer
    counts: Counter[str] = Counter()
    for line in text:
        counts.update(line if normalizer is None else normalizer.normalize_str(line))
    return counts


def count_words(lines: Iterator[str], config: VocabularyConfig) -> Counter[str]:
    """Count the words, which are split and normalized as for the model."""
    chunks: Counter[str] = Counter()
    for line in lines:
        chunks.update(cut(line, runs=config.kind != "word"))
        if len(chunks) > MAX_DISTINCT:
            chunks = Counter({chunk: n for chunk, n in chunks.items() if n > 1})
    bare = engine.build(engine.pipeline(config, engine.NO_WORDS))
    counts: Counter[str] = Counter()
    items = iter(chunks.items())
    while some := list(islice(items, CHUNKS_AT_ONCE)):
        add_words(counts, split_chunks(bare, config, [chunk for chunk, _ in some]), [n for _, n in some])
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
