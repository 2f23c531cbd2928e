"""``attnkit vocab``: training of a vocabulary on text files."""

import errno
import os
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from attnkit.cli.options import Json, Quiet
from attnkit.errors import UsageError, system_failure
from attnkit.io import atomic
from attnkit.progress import console
from attnkit.text.config import TrainedKind, VocabularyConfig
from attnkit.text.lines import check_not_overwriting, check_not_streams, open_binary

DEFAULT = VocabularyConfig()


def command(
    paths: Annotated[
        list[Path], Argument(metavar="FILE...", help="Sentences, one per line; plain or compressed, or TABLE:FIELD.")
    ],
    output: Annotated[Path, Option("-o", "--output", help="Vocabulary file to write.")],
    kind: Annotated[TrainedKind, Option(help="Kind of vocabulary.")] = "bpe",
    size: Annotated[int, Option(help="Maximum number of entries.")] = DEFAULT.size,
    min_frequency: Annotated[int, Option(help="Minimum frequency of an entry.")] = DEFAULT.min_frequency,
    normalize: Annotated[Literal["none", "nfc", "nfkc"], Option(help="Unicode normalization.")] = DEFAULT.normalize,
    lowercase: Annotated[bool, Option(help="Lower-case all text.")] = DEFAULT.lowercase,
    byte_fallback: Annotated[
        bool, Option("--byte-fallback/--no-byte-fallback", help="Encode unseen characters as bytes instead of <unk>.")
    ] = DEFAULT.byte_fallback,
    symbol: Annotated[list[str] | None, Option(help="Symbol kept as one token; repeatable.", metavar="TEXT")] = None,
    placeholders: Annotated[
        bool, Option("--placeholders", help="Add the symbols that data.placeholders needs.")
    ] = False,
    annotate_terms: Annotated[
        bool, Option("--annotate-terms", help="Add the symbols that data.annotate_terms needs.")
    ] = False,
    multiple_of: Annotated[int, Option(help="Round the vocabulary size up to a multiple of N.")] = DEFAULT.multiple_of,
    sample_lines: Annotated[
        int | None, Option(help="Build from N lines drawn uniformly from all files. [default: all lines]", metavar="N")
    ] = None,
    sample_seed: Annotated[int, Option(help="Random seed of --sample-lines.")] = DEFAULT.sample_seed,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Build a vocabulary from text files; several files share one joint vocabulary.

    \b
    Examples:
      attnkit vocab a.en a.de -o vocab.json
      attnkit vocab a.en.gz -o en.json --kind unigram --size 16000
      attnkit vocab a.en a.de -o vocab.json --symbol "<2en>" --symbol "<2de>"
      attnkit vocab a.en a.de -o vocab.json --placeholders
      attnkit vocab a.en a.de -o vocab.json --sample-lines 1000000

    The entries are subwords (bpe, unigram, wordpiece), words or characters.
    """
    from attnkit.config import validate
    from attnkit.text.inline_symbols import inline_symbols
    from attnkit.text.vocabulary import train_vocabulary
    from attnkit.text.vocabulary_statistics import statistics

    values = {name: value for name, value in locals().items() if name in VocabularyConfig.model_fields}
    inline = inline_symbols(placeholders=placeholders, annotate_terms=annotate_terms)
    values["symbols"] = [*inline, *(symbol or ())]
    origins = {name: f"--{name.replace('_', '-')}" for name in values} | {"symbols": "--symbol"}
    config = validate(VocabularyConfig, values, origins)
    check_files(paths, output)
    console.info(f"reading {', '.join(map(str, paths))}")
    tokenizer = train_vocabulary(paths, config)
    with atomic.open_output(output) as stream:
        stream.write(tokenizer.to_json())
    console.info(f"wrote {output}; counting")
    found = statistics(tokenizer, paths)
    if json:
        report: dict[str, Any] = {"path": str(output)}
        report |= {name: getattr(tokenizer, name) for name in ("vocab_size", "n_unused", "fingerprint")}
        report |= {"config": tokenizer.config.model_dump(mode="json")}
        report |= {name: getattr(found, name) for name in ("coverage", "tokens_per_word", "unknown_rate")}
        console.result(dumps({**report, **asdict(found)}, indent=1, ensure_ascii=False))
        return
    size_text = f"{tokenizer.vocab_size:,} entries"
    if tokenizer.n_unused:
        size_text += f", {tokenizer.n_unused:,} of them unused"
    if tokenizer.vocab_size <= tokenizer.config.size - tokenizer.config.multiple_of:
        size_text += f" (requested {tokenizer.config.size:,}; the text yields no more)"
    if tokenizer.config.sample_lines is not None:
        size_text += f", built from {tokenizer.config.sample_lines:,} lines at most"
    rows = [
        ("text", f"{found.n_lines:,} lines, {found.n_words:,} words"),
        ("coverage", f"{100 * found.coverage:.3f} % of characters covered (not encoded as bytes or <unk>)"),
        ("tokens per word", f"{found.tokens_per_word:.2f}"),
        ("unknown", f"{100 * found.unknown_rate:.3f} % of tokens"),
        ("longest line", f"{found.longest:,} tokens ({found.longest_path}:{found.longest_line})"),
    ]
    console.result(f"{output}: {tokenizer.config.kind}, {size_text}\n{console.table(rows)}")


def check_files(paths: list[Path], output: Path) -> None:
    """Check before training that inputs can be reread and the output written."""
    check_not_streams(paths)
    for path in paths:
        open_binary(path).close()
    folder = output.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"no such folder: {output.parent}", help=f"mkdir -p {output.parent}")
    if output.is_dir():
        raise UsageError(f"{output} is a folder", help="name a file after -o")
    is_device = output.exists() and not output.is_file()  # or a pipe, which is written in place
    if not is_device and not os.access(folder, os.W_OK | os.X_OK):
        raise system_failure("write", output, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    check_not_overwriting(output, paths)
