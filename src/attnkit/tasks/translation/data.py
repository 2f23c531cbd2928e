"""Prepared data of translation runs: filtered, encoded pairs and vocabularies."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data import prepared_dir
from attnkit.data.config import DataConfig
from attnkit.data.pairs import Pairs, write_pairs
from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.engine.checkpoint_metadata import TEXT_FILES
from attnkit.engine.vocabularies import Vocabularies, load_vocabularies
from attnkit.errors import DataError, UsageError
from attnkit.io import atomic
from attnkit.io.safe_read import read_regular_file
from attnkit.protocols import UNK_ID
from attnkit.quality.pair_filters import Pair
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.loading import SOURCE_STATISTICS, TRAINING_PROFILE, provided_vocabularies
from attnkit.tasks.translation.parallel_data import ParallelData, file_pairs
from attnkit.text.config import MASK, CheckConfig
from attnkit.text.encoding import BatchEncoder, EncodedLines
from attnkit.text.parallel import mismatch
from attnkit.text.tags import (
    BACK_TRANSLATED,
    DIRECTIONS,
    VALID_DIRECTIONS,
    direction_tags,
    is_back_translated,
    language_of_code,
    language_tag,
    with_tag,
)
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

_CHUNK = 4096  # lines encoded at a time
_LONGEST_VALID = 4096  # tokens
DENOISE = "--denoise (data.denoise)"  #: option and key

Rewrite = Callable[[Pair], Pair]


@dataclass(frozen=True)
class TranslationData:
    """Prepared data of a training run."""

    pairs: Pairs
    valid: Pairs
    valid_src: list[str]
    valid_tgt: list[str]
    valid_directions: list[str]  #: of each validation pair, such as ``en:de``; empty strings without directions
    vocabularies: Vocabularies
    source_statistics: bytes
    profile: bytes
    counts: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Hash that changes with any id and any line boundary."""
        return self.pairs.fingerprint

    @property
    def texts(self) -> Mapping[str, bytes]:
        """Files to store in checkpoints, by name."""
        own = {SOURCE_STATISTICS: self.source_statistics, TRAINING_PROFILE: self.profile}
        return {**self.vocabularies.files(), **own}


def prepare(
    config: TranslationConfig, folder: Path, checkpoint: Checkpoint | None = None, origin: str | None = None
) -> Iterator[StatusEvent | DataCheckEvent | WarningEvent]:
    """Encode the training and validation text into ``folder``, unless already done.

    Args:
        config: configuration of the run.
        folder: RUN/data.
        checkpoint: checkpoint that provides vocabularies, if any.
        origin: fingerprint of the weights that initialize the run. If it changes, the text is encoded again, because
            ids of another vocabulary do not fit these weights.

    Raises:
        DataError: a file is missing or undecodable, line counts differ, or no pairs are left.
        RunError: the folder is damaged.
        UsageError: the files changed since the folder was prepared.
    """
    data = config.data
    named = [*data.src, *data.tgt, *data.mix_src, *data.mix_tgt, *(data.valid_src or ()), *(data.valid_tgt or ())]
    if prepared_dir.is_prepared(folder, named, origin):
        return
    if data.denoise is None:  # lines that are restored are no pairs
        yield StatusEvent("checking the text")
        yield from _check(data)
    given, source = provided_vocabularies(config, checkpoint)
    check_given(config, given, source)
    if (reads := source or (given and given.src)) is not None:
        check_tags(config, reads)
        if _has_back_translated(config) and reads.token_id(BACK_TRANSLATED) is None:
            what = f"the given vocabulary has no symbol {BACK_TRANSLATED}, with which synthetic sources begin"
            yield WarningEvent(f'{what}: add --add-symbols "{BACK_TRANSLATED}", or write them with --tag ""')
    with atomic.atomic_dir(folder) as temporary:
        corpora = ParallelData(data)
        if not corpora.valid:
            unit, help = "sentence pair", "give --valid-src and --valid-tgt"
            if data.denoise is not None:
                unit, help = "line", "give --valid-data"
            raise DataError(f"no {unit} left for validation", help=help)
        if given is None:
            what = "two vocabularies" if source is None else "the target vocabulary"
            yield StatusEvent(f"building {'the vocabulary' if config.joint_vocabulary else what}")
            given = train_vocabularies(config, source, corpora.lines)
        for name, content in given.files().items():
            atomic.write_new_file(temporary / name, content)
        yield StatusEvent("aligning words, encoding the text" if config.inline_symbols else "encoding the text")
        sizes = (given.src.vocab_size, given.tgt.vocab_size)
        from attnkit.text.sentences import MAX_SAMPLE  # imported here: a resumed run reads no text

        text = EncodedText()
        share = MAX_SAMPLE // len(corpora.training)
        rewrite, mask = _rewriters(data, corpora)
        tags = [direction_tags(direction, given.src.language_codes) for direction in corpora.directions]
        with BatchEncoder(given) as encoder:
            encoded = [
                _encode(encoder, corpora.corpus(number), text, share, Rewriter(rewrite, both))
                for number, both in enumerate(tags)
            ]
            pairs = write_pairs(temporary / "train", encoded, sizes, data)
        if not len(pairs):
            raise DataError("no sentence pair left for training", help=f"attnkit check {data.src[0]} {data.tgt[0]}")
        for side in text.tokens:
            yield from prepared_dir.warn_of_unknown(text.unknown[side], text.tokens[side], side)
        if checkpoint is None:
            yield from _warn_of_size(config, sizes, len(pairs), sum(text.tokens.values()))
        for name, content in _learn(text, given.src).items():
            atomic.write_new_file(temporary / name, content)
        valid = _write_valid(temporary, corpora, given, config, mask)
        counts = {**corpora.counts, **asdict(pairs.dropped), "train": len(pairs), "valid": len(corpora.valid)}
        counts |= {"blank_in_validation": corpora.n_blank_valid, "without_validation_loss": valid.dropped.too_long}
        inputs = dict.fromkeys(path for files in (*corpora.training, *corpora.validation) for path in files)
        prepared_dir.write_index(temporary, list(inputs), origin, counts)


def _write_valid(
    folder: Path, corpora: ParallelData, vocabularies: Vocabularies, config: TranslationConfig, mask: Rewrite
) -> Pairs:
    """Write the validation pairs: encoded after their tags, and as text without."""
    # Validation keeps pairs of any length ratio, and of any length that the model has positions for.
    limit = config.model.max_positions
    longest = _LONGEST_VALID if limit is None else min(_LONGEST_VALID, limit - 1)
    loose = config.data.model_copy(update={"max_length": longest, "max_ratio": 1e9})
    codes, kept = vocabularies.src.language_codes, corpora.valid
    if config.data.denoise is not None:
        from attnkit.tasks.translation.denoising import corrupted_pairs  # imported here: most runs translate

        kept = corrupted_pairs(config, vocabularies.src, [line for _, line in kept])
    tagged = [
        Rewriter(mask, direction_tags(direction, codes))(pair)
        for pair, direction in zip(kept, corpora.valid_directions, strict=True)
    ]
    sizes = (vocabularies.src.vocab_size, vocabularies.tgt.vocab_size)
    with BatchEncoder(vocabularies) as encoder:
        valid = write_pairs(folder / "valid", [_encode(encoder, tagged, EncodedText())], sizes, loose)
    for side, lines in zip(("src", "tgt"), zip(*kept, strict=True), strict=True):
        prepared_dir.write_lines(folder / f"valid.{side}.txt", lines)
    prepared_dir.write_lines(folder / "valid.directions.txt", corpora.valid_directions)
    return valid


def open_prepared(folder: Path) -> TranslationData:
    """Open the folder that ``prepare`` wrote; raise ``RunError`` if it is damaged."""
    with prepared_dir.open_prepared_dir(folder) as index:
        names = ("src", "tgt", "directions")
        valid_src, valid_tgt, directions = (prepared_dir.read_lines(folder / f"valid.{name}.txt") for name in names)
        if not len(valid_src) == len(valid_tgt) == len(directions) == index["counts"].get("valid"):
            raise ValueError("validation lines are missing")
        return TranslationData(
            pairs=Pairs.open(folder / "train"),
            valid=Pairs.open(folder / "valid"),
            valid_src=valid_src,
            valid_tgt=valid_tgt,
            valid_directions=directions,
            vocabularies=load_vocabularies(folder),
            source_statistics=read_regular_file(folder / SOURCE_STATISTICS, TEXT_FILES[SOURCE_STATISTICS]),
            profile=read_regular_file(folder / TRAINING_PROFILE, TEXT_FILES[TRAINING_PROFILE]),
            counts=index["counts"],
        )


def train_vocabularies(
    config: TranslationConfig, source: Tokenizer | None, lines: Callable[..., Iterable[str]]
) -> Vocabularies:
    """Train missing vocabularies; ``lines(0)`` is source text, ``lines(0, 1)`` both.

    The tags of target languages become symbols, that of back-translated text if a source file has it, and the mask of
    denoising.
    """
    tags = list(map(language_tag, config.data.target_languages))
    tags += [BACK_TRANSLATED] if _has_back_translated(config) else []
    tags += [MASK] if config.data.denoise is not None else []
    symbols = dict.fromkeys([*config.inline_symbols, *tags, *config.vocabulary.symbols])
    settings = config.vocabulary.model_copy(update={"symbols": tuple(symbols)})
    if source is None and config.joint_vocabulary:
        sides = (0, 1) if config.data.denoise is None else (0,)  # both are the same lines
        joint = train_vocabulary(lines(*sides), settings)
        return Vocabularies(joint, joint)
    src = train_vocabulary(lines(0), settings) if source is None else source
    return Vocabularies(src, train_vocabulary(lines(1), settings))


def _has_back_translated(config: TranslationConfig) -> bool:
    return any(is_back_translated(Path(path)) for path in (*config.data.src, *config.data.mix_src))


def check_given(config: TranslationConfig, given: Vocabularies | None, source: Tokenizer | None) -> None:
    """Raise ``UsageError`` if vocabularies lack symbols or are of another kind."""
    for tokenizer in [*(given or ()), *([source] if source is not None else ())]:
        check_symbols(config, tokenizer)
        if (kind := config.regularization.sampled_kind) is not None:
            from attnkit.text.subword_sampling import check_kind  # imported here: most runs sample nothing

            check_kind(tokenizer, kind)


def check_symbols(config: TranslationConfig, tokenizer: Tokenizer) -> None:
    """Raise ``UsageError`` if a given vocabulary lacks ``inline_symbols`` or the mask."""
    if config.data.denoise is not None and tokenizer.language_codes:
        what = "denoising of an imported model of many languages is not supported"
        raise UsageError(what, where=DENOISE, help="train it on pairs: --pair")
    if config.data.denoise is not None and tokenizer.token_id(MASK) is None:
        what = f"data.denoise needs the symbol {MASK}, which the given vocabulary lacks"
        help = f'add --add-symbols "{MASK}" to --init-from, or build it with --symbol "{MASK}" (attnkit vocab)'
        raise UsageError(what, where=DENOISE, help=help)
    if any(tokenizer.token_id(symbol) is None for symbol in config.inline_symbols):
        key = "data.placeholders" if config.data.placeholders else "data.annotate_terms"
        option = "--annotate-terms" if config.data.annotate_terms else "--placeholders"
        what = f"{key} needs symbols that the given vocabulary lacks"
        raise UsageError(what, where=key, help=f"build it with {option} (attnkit vocab), or turn the key off")


def check_tags(config: TranslationConfig, tokenizer: Tokenizer) -> None:
    """Raise ``UsageError`` if a given vocabulary lacks a language's tag or code.

    Or if it has codes, but neither it nor the text a language.
    """
    if codes := tokenizer.language_codes:
        if config.data.directions is None and not tokenizer.code_ids:
            what, shown = "the imported model has no usual languages", ":".join(map(language_of_code, codes[:2]))
            raise UsageError(what, where=DIRECTIONS, help=f"name those of the text: --pair {shown} SRC TGT")
        named = (DIRECTIONS, config.data.training_pairs), (VALID_DIRECTIONS, config.data.validation_pairs)
        for option, pairs in named:
            for pair in pairs:
                direction_tags(pair.direction, codes, option)
        return
    for tag in map(language_tag, config.data.target_languages):
        if tokenizer.token_id(tag) is None:
            what = f"the given vocabulary lacks {tag}, the tag of a target language"
            help = f'add --add-symbols "{tag}" to --init-from, or build it with --symbol "{tag}" (attnkit vocab)'
            raise UsageError(what, where=DIRECTIONS, help=help)


@dataclass(frozen=True)
class Rewriter:
    """Rewrites pairs as a model reads them: symbols first, then tags of both sides."""

    rewrite: Rewrite
    tags: tuple[str, str]

    def __call__(self, pair: Pair) -> Pair:
        source, target = self.rewrite(pair)
        return with_tag(source, self.tags[0]), with_tag(target, self.tags[1])


def _rewriters(data: DataConfig, corpora: ParallelData) -> tuple[Rewrite, Rewrite]:
    """Return what puts symbols into training pairs and validation pairs."""
    if not (data.placeholders or data.annotate_terms):
        return (lambda pair: pair,) * 2
    from attnkit.tasks.translation.inline_text import TrainingText, mask_shared  # imported here: most runs have none

    return TrainingText(data, corpora.pairs()).rewrite, lambda pair: mask_shared(data, pair)


@dataclass
class EncodedText:
    """Counts of encoded pairs, and a sample of them."""

    tokens: Counter[str] = field(default_factory=Counter)  #: by side
    unknown: Counter[str] = field(default_factory=Counter)  #: unknown tokens, by side
    characters: set[str] = field(default_factory=set)  #: of all sources
    sample: list[Pair] = field(default_factory=list)
    lengths: list[tuple[int, int]] = field(default_factory=list)  #: tokens of both sides of each pair of the sample


def _encode(
    encoder: BatchEncoder,
    pairs: Iterable[Pair],
    text: EncodedText,
    n_sampled: int = 0,
    rewrite: Rewrite = lambda pair: pair,
) -> Iterator[list[EncodedLines]]:
    """Yield batches of encoded pairs; count and sample them in ``text``."""

    def batches() -> Iterator[tuple[list[Pair], list[tuple[str, ...]]]]:
        remaining = iter(pairs)
        while chunk := list(islice(remaining, _CHUNK)):
            yield chunk, list(zip(*map(rewrite, chunk), strict=True))

    for chunk, rows in encoder.encode(batches()):
        for side, encoded in zip(("source", "target"), rows, strict=True):
            text.tokens[side] += len(encoded.ids)
            text.unknown[side] += int(np.count_nonzero(encoded.ids == UNK_ID))
        text.characters.update(*(pair[0] for pair in chunk))
        text.sample += chunk[:n_sampled]
        text.lengths += zip(*(side.lengths[:n_sampled].tolist() for side in rows), strict=True)
        n_sampled = max(0, n_sampled - len(chunk))
        yield rows


def _warn_of_size(
    config: TranslationConfig, vocab_sizes: tuple[int, int], n_pairs: int, n_tokens: int
) -> Iterator[WarningEvent]:
    """Warn of a model that is far too large for the text."""
    from attnkit.quality.findings import FEW  # imported here: a resumed run reads no text

    if n_pairs < FEW:  # the check has said so
        return
    from attnkit.engine.plan_advice import warn_of_size

    if warning := warn_of_size(config.model.min_parameters(*vocab_sizes), n_tokens):
        yield WarningEvent(warning)


def _learn(text: EncodedText, tokenizer: Tokenizer) -> dict[str, bytes]:
    """Return what is learned from the sample, as files of a checkpoint."""
    from attnkit.quality.profile import learn_profile
    from attnkit.text.sentences import learn_statistics

    statistics = learn_statistics([src for src, _ in text.sample], [n for n, _ in text.lengths])
    profile = learn_profile(text.sample, text.lengths, text.characters, tokenizer.normalize)
    learned = {SOURCE_STATISTICS: statistics, TRAINING_PROFILE: profile}
    return {name: model.model_dump_json().encode() for name, model in learned.items()}


def _training_files_alike(data: DataConfig) -> dict[tuple[Path, Path], list[tuple[Path, Path]]]:
    """Return the training files in the direction of each pair of validation files."""
    training = [(pair.direction, (Path(pair.src), Path(pair.tgt))) for pair in data.training_pairs]
    return {
        (Path(pair.src), Path(pair.tgt)): [files for direction, files in training if direction == pair.direction]
        for pair in data.validation_pairs
    }


def _check(data: DataConfig) -> Iterator[DataCheckEvent]:
    """Check all files and yield reports; raise ``DataError`` for fatal findings."""
    from attnkit.quality.check import check_pair
    from attnkit.quality.doctor import Expected, examine_pair  # imported here: a resumed run checks no text

    limits = CheckConfig(max_ratio=data.max_character_ratio)
    learned, training = file_pairs(data.src, data.tgt), file_pairs(data.src + data.mix_src, data.tgt + data.mix_tgt)
    validation = file_pairs(data.valid_src, data.valid_tgt)
    alike = _training_files_alike(data)
    for src, tgt in [*training, *validation]:
        others = next(iter(alike.get((src, tgt), ())), None)
        # General text that is mixed in may be short: it is not what is to be learned.
        expected = Expected(is_training=(src, tgt) in learned)
        report = examine_pair(src, tgt, limits, others=others, expected=expected)
        event = DataCheckEvent(report, accepted=data.accept)
        yield event
        for other in alike.get((src, tgt), [])[1:]:
            overlap = [f for f in check_pair(src, tgt, others=other).findings if f.name.endswith("_overlap")]
            yield DataCheckEvent(replace(report, findings=overlap, severity="good"))
        if report.n_src != report.n_tgt:
            shifted = next((stretch for stretch in report.stretches if stretch.kind == "shifted"), None)
            raise mismatch(src, tgt, report.n_src, report.n_tgt, None if shifted is None else shifted.first)
        for finding in report.findings:
            if finding.fatal:
                path = tgt if finding.side == "target" else src
                raise DataError(
                    f"{finding.count:,} {finding.described}" if finding.name != "empty" else "the file is empty",
                    where=f"{path}:{finding.first_line}" if finding.first_line else str(path),
                    help=f"attnkit check {src} {tgt} shows all findings",
                )
        if report.severity == "stop" and not event.accepted:
            is_swapped = any(finding.name == "swapped_sides" for finding in report.findings)
            change = "exchange the files" if is_swapped else "give another file for one side"
            mends = f"attnkit {shlex.join(report.remedy)} mends it"
            remedy = mends if report.remedy and not is_swapped else change
            raise DataError(report.verdict, where=f"{src} and {tgt}", help=f"{remedy}; --accept-data trains anyway")
