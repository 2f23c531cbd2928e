"""The estimate of a translation run: parameters, memory and tokens per epoch, from a sample of its text."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.dry_run import SAMPLE, estimate
from attnkit.engine.task import RunEstimate
from attnkit.engine.vocabularies import Vocabularies
from attnkit.models.translation import build_model
from attnkit.tasks.translation.bert_encoder import refuse_misfit
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.loading import provided_source_vocabulary, provided_vocabularies
from attnkit.text.lines import count_lines
from attnkit.text.parallel import read_parallel
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary


def plan(config: TranslationConfig, init_from: Path | None = None) -> RunEstimate:
    """Estimate a run from its configuration and a sample of its text.

    Vocabularies that are given are read, others made of the samples: where these are all the text, they are the run's.
    """
    files = list(zip(map(Path, config.data.src), map(Path, config.data.tgt), strict=True))
    samples = [list(islice(read_parallel(src, tgt), SAMPLE)) for src, tgt in files]  # which refuses what is no text
    counts = [count_lines(src) for src, _ in files]
    checkpoint = None if init_from is None else RunFolder(init_from).checkpoint()[0]
    if checkpoint is not None:
        refuse_misfit(checkpoint, config)
    given = provided_vocabularies(config, checkpoint)
    every = [pair for sample in samples for pair in sample]
    vocabularies = given or _of_samples(config, every, provided_source_vocabulary(config, checkpoint))
    whole = given is not None or max(counts) <= SAMPLE
    sides = (vocabularies.src, vocabularies.tgt)
    tokens = 0.0
    for sample, lines, weight in zip(samples, counts, config.data.weights or [1.0] * len(files), strict=True):
        n = sum(len(ids) + 1 for k, side in enumerate(sides) for ids in side.encode([pair[k] for pair in sample]))
        tokens += weight * n * lines / len(sample)
    src_size, tgt_size = (side.vocab_size if whole else config.vocabulary.size for side in sides)
    return estimate(config, sum(counts), tokens, lambda: build_model(config.model, src_size, tgt_size), tgt_size)


def _of_samples(config: TranslationConfig, pairs: list[tuple[str, str]], source: Tokenizer | None) -> Vocabularies:
    if source is not None:
        return Vocabularies(source, train_vocabulary((tgt for _, tgt in pairs), config.vocabulary))
    if config.joint_vocabulary:
        joint = train_vocabulary((text for pair in pairs for text in pair), config.vocabulary)
        return Vocabularies(joint, joint)
    return Vocabularies(*(train_vocabulary((pair[side] for pair in pairs), config.vocabulary) for side in (0, 1)))
