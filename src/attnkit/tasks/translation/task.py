"""The translation task: data, model, loss, evaluation and dry-run estimate."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.checkpoints.arrays import check_file_holds_weights
from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import load_weights
from attnkit.data.loader import Dataset, Sampler
from attnkit.data.pairs import write_pairs
from attnkit.data.prepared_dir import StatusEvent, WarningEvent, read_index
from attnkit.engine.checkpoint_metadata import read_tree
from attnkit.engine.events import PrepareEvent
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.seq2seq import seq2seq_loss
from attnkit.engine.task import CorpusSize, Evaluation, LossFunction, RunEstimate, Stop, Task
from attnkit.engine.trainer import Event, TrainingFinished, TrainingStarted, TrainRequest, ValidationFinished, train
from attnkit.engine.vocabularies import read_vocabularies
from attnkit.errors import AttnkitError, RunError, SystemFailure, UsageError
from attnkit.kernels.native import compiling_note, has_loops, load_loops
from attnkit.kernels.simd.targets import choose_target
from attnkit.models.parts import layerwise_rates, part_of
from attnkit.models.translation import TranslationModel, build_model
from attnkit.tasks.translation.config import MIN_CONFIDENCE_LINES, TranslationConfig
from attnkit.tasks.translation.data import (
    TranslationData,
    check_given,
    check_tags,
    open_prepared,
    prepare,
    train_vocabularies,
)
from attnkit.tasks.translation.evaluate import TranslationEvaluation, compiled_form
from attnkit.tasks.translation.loading import is_bert, provided_vocabularies, read_confidence
from attnkit.tasks.translation.parallel_data import check_both_ways
from attnkit.text.encoding import EncodedLines
from attnkit.text.lines import count_lines
from attnkit.text.parallel import read_parallel
from attnkit.text.tags import DIRECTIONS

__all__ = ["TASK", "Event", "TrainRequest", "TrainingFinished", "TrainingStarted", "ValidationFinished", "train"]


class TranslationTask(Task[TranslationConfig, TranslationData, TranslationModel]):
    """Sequence-to-sequence translation with a Transformer or a recurrent model."""

    def prepare(
        self, config: TranslationConfig, folder: Path, source: Checkpoint | None, origin: str | None
    ) -> Iterator[PrepareEvent]:
        yield from prepare(config, folder, source, origin)
        with suppress(RunError, SystemFailure):  # who loads the data reports damage; without a compiler torch searches
            n_lines = read_index(folder)["counts"].get("valid", 0)
            if compiled_form(config, n_lines) and not has_loops("search", "float32"):
                yield StatusEvent(compiling_note("search", "float32"))
                load_loops("search", choose_target(), "float32")

    def load_data(self, config: TranslationConfig, folder: Path) -> TranslationData:
        data = _sampled(config, open_prepared(folder))
        if config.data.denoise is None:
            return data
        from attnkit.data.infilling import InfilledPairs  # imported here: most runs translate
        from attnkit.tasks.translation.denoising import infilling_of

        return replace(data, pairs=InfilledPairs(data.pairs, infilling_of(config, data.vocabularies.src)))

    def build_model(self, config: TranslationConfig, data: TranslationData) -> TranslationModel:
        vocabularies = data.vocabularies
        return build_model(config.model, vocabularies.src.vocab_size, vocabularies.tgt.vocab_size)

    def evaluation(
        self, config: TranslationConfig, data: TranslationData, device: torch.device, stop: Stop | None
    ) -> Evaluation:
        n_samples = config.evaluation.n_samples
        compiled = compiled_form(config, len(data.valid_src)) if device.type == "cpu" else None
        settings = data, config.decoding, device, n_samples, config.max_source, compiled, stop
        symbols = config.data if config.inline_symbols else None
        return TranslationEvaluation(*settings, has_adapters=config.lora is not None, symbols=symbols)

    def model_for_checkpoint(self, checkpoint: Checkpoint, config: TranslationConfig) -> TranslationModel:
        return build_model(config.model, *_vocabulary_sizes(checkpoint, config))

    def check_compatible(self, checkpoint: Checkpoint, config: TranslationConfig) -> None:
        if not is_bert(checkpoint):
            check_directions(checkpoint, config)
            _vocabulary_sizes(checkpoint, config)
            for vocabulary in read_vocabularies(checkpoint):
                if config.extension is None or vocabulary.language_codes:  # an extension may add tags
                    check_tags(config, vocabulary)
            return
        from attnkit.tasks.translation.bert_encoder import check_encoder_fits

        check_encoder_fits(checkpoint, config)

    def init_weights(
        self, config: TranslationConfig, model: TranslationModel, source: Checkpoint, data: TranslationData
    ) -> None:
        if config.extension is not None:
            from attnkit.tasks.translation.extension import init_extended  # imported here: few runs extend any

            init_extended(model, source, data.vocabularies)
        elif not is_bert(source):
            load_weights(model, source)
        else:
            from attnkit.tasks.translation.bert_encoder import init_encoder

            init_encoder(model, source)

    def freeze(self, config: TranslationConfig, model: TranslationModel) -> None:
        for name, parameter in model.named_parameters():
            if part_of(name) in config.finetuning.freeze:
                parameter.requires_grad_(False)

    def lr_multipliers(self, config: TranslationConfig, model: TranslationModel) -> Mapping[str, float]:
        decay = config.finetuning.layerwise_lr_decay
        return {} if decay == 1 else layerwise_rates((name for name, _ in model.named_parameters()), decay)

    def complete(
        self, config: TranslationConfig, data: TranslationData, run: Path, stop: Stop | None
    ) -> Iterator[PrepareEvent]:
        if not config.learns_confidence or len(data.valid_src) < MIN_CONFIDENCE_LINES:
            return
        from attnkit.tasks.translation.confidence import add_confidence  # imported here: few lines need none of it

        yield StatusEvent("learning the confidence of translations")
        lines = list(zip(data.valid_src, data.valid_tgt, data.valid_directions, strict=True))
        try:
            add_confidence(run, lines, device=config.device, threads=torch.get_num_threads(), stop=stop)
        except AttnkitError as error:  # the run itself is complete
            yield WarningEvent(f"translations will have no confidence: {error.what}")

    def is_complete(self, config: TranslationConfig, run: Path) -> bool:
        if not config.learns_confidence:
            return True
        folder = RunFolder(run)
        with suppress(RunError, SystemFailure):  # without the encoded text nothing can be learned
            enough = read_index(folder.data_path)["counts"].get("valid", 0) >= MIN_CONFIDENCE_LINES
            # The curve of an earlier end of the run is that of other weights.
            return not enough or read_confidence(run, fingerprint_of(folder.checkpoint()[0])) is not None
        return True

    def model_card(self, config: TranslationConfig, name: str) -> ModelCardFields:
        from attnkit.metrics.bleu import corpus_bleu, corpus_chrf

        # A signature depends on the settings and the number of references only.
        signatures = ", ".join(f"`{score(['a'], [['a']]).signature}`" for score in (corpus_bleu, corpus_chrf))
        what, sources = "A translation model", [f"`{pair.src}` to `{pair.tgt}`" for pair in config.data.training_pairs]
        if (noise := config.data.denoise) is not None:
            what = "A model that restores masked text, pretrained to become a translation model,"
            masked = f"{noise.mask_prob:.0%} masked in spans of {noise.span_length:g} tokens"
            sources = [f"`{pair.src}`, {masked}" for pair in config.data.training_pairs]
        return ModelCardFields(
            what=f"{what} ({config.model.kind})",
            data=[
                source + (f" ({pair.direction})" if pair.direction else "")
                for source, pair in zip(sources, config.data.training_pairs, strict=True)
            ],
            scored=f", greedy search; BLEU and chrF by sacreBLEU: {signatures}.",
            use=f"attnkit translate {name} -i input.txt -o output.txt"
            + "".join(f" {option}" for option in config.language_options),
            hub_task="translation",
            hub_metrics=("bleu", "chrf"),
        )

    def dry_run(self, config: TranslationConfig, init_from: Path | None = None) -> RunEstimate:
        from attnkit.engine.dry_run import estimate_run  # imported here: a training run is not estimated

        unit = "pairs" if config.data.denoise is None else "lines"
        return estimate_run(self, config, self.corpus_size(config, init_from), unit)

    def corpus_size(self, config: TranslationConfig, init_from: Path | None = None) -> CorpusSize:
        from attnkit.engine.dry_run import SAMPLE

        checkpoint = None if init_from is None else RunFolder(init_from).checkpoint()[0]
        if checkpoint is not None:
            self.check_compatible(checkpoint, config)
        if config.data.bidirectional:
            check_both_ways(config.data)
        files = [(Path(pair.src), Path(pair.tgt)) for pair in config.data.training_pairs]
        # Reading raises DataError for a file that is not UTF-8 text.
        samples = [list(islice(read_parallel(src, tgt), SAMPLE)) for src, tgt in files]
        counts = [count_lines(src) for src, _ in files]

        def sample_lines(*sides: int) -> Iterator[str]:
            return (pair[side] for sample in samples for pair in sample for side in sides)

        # Vocabularies built from the samples equal the run's only if the samples are the whole text.
        given, source = provided_vocabularies(config, checkpoint)
        check_given(config, given, source)
        vocabularies = given or train_vocabularies(config, source, sample_lines)
        whole = given is not None or max(counts) <= SAMPLE
        tokens, lengths = 0.0, []
        weights = config.data.sampling_weights(counts) or [1.0] * len(files)
        for sample, lines, weight in zip(samples, counts, weights, strict=True):
            texts = ([pair[side] for pair in sample] for side in (0, 1))
            found = [EncodedLines.of(v.encode(text)).lengths for v, text in zip(vocabularies, texts, strict=True)]
            lengths.append(found)
            tokens += weight * (sum(int(n.sum()) for n in found) + 2 * len(sample)) * lines / len(sample)
        sizes = tuple(side.vocab_size if whole else config.vocabulary.size for side in vocabularies)
        from attnkit.engine.plan_advice import warn_of_size  # imported here: a training run is not estimated
        from attnkit.quality.findings import FEW

        is_new = checkpoint is None and sum(counts) >= FEW
        note = warn_of_size(config.model.min_parameters(*sizes), tokens) if is_new else ""
        return CorpusSize(sum(counts), tokens, sizes, tuple(map(np.concatenate, zip(*lengths, strict=True))), note)

    def sized_model(self, config: TranslationConfig, vocab_sizes: Sequence[int]) -> TranslationModel:
        return build_model(config.model, vocab_sizes[0], vocab_sizes[1])

    def random_dataset(self, config: TranslationConfig, corpus: CorpusSize, folder: Path) -> Dataset:
        from attnkit.engine.dry_run import random_rows

        sizes = corpus.vocab_sizes[0], corpus.vocab_sizes[1]
        rows = [random_rows(n, size) for n, size in zip(corpus.lengths, sizes, strict=True)]
        return write_pairs(folder / "pairs", [[rows]], sizes, config.data)

    def dataset(self, data: TranslationData) -> Dataset:
        return data.pairs

    def sampler(self, config: TranslationConfig, data: TranslationData) -> Sampler | None:
        return data.pairs.sampler(config.data.sampling_weights(data.pairs.corpora))

    def loss(
        self, config: TranslationConfig, model: TranslationModel, data: TranslationData, device: torch.device
    ) -> LossFunction:
        return seq2seq_loss(model, device, config.optimization.label_smoothing, config.regularization.r_drop)


def _sampled(config: TranslationConfig, data: TranslationData) -> TranslationData:
    """Return data whose training text is segmented anew in every epoch, if configured."""
    settings = config.regularization
    if settings.sampled_kind is None:
        return data
    from attnkit.data.subword_sampling import SampledPairs, Samplers  # imported here: most runs sample nothing
    from attnkit.text.subword_sampling import subword_sampler

    sampler = partial(
        subword_sampler, dropout=settings.bpe_dropout, alpha=settings.unigram_alpha, longest=config.data.max_length
    )
    samplers = Samplers(*map(sampler, data.vocabularies))
    return replace(data, pairs=SampledPairs(data.pairs, samplers))


def check_directions(checkpoint: Checkpoint, config: TranslationConfig) -> None:
    """Raise ``UsageError`` if weights of named directions are trained without names."""
    tree = read_tree(checkpoint).get("data")
    data = tree if isinstance(tree, dict) else {}
    known = data.get("directions")
    if known and config.data.directions is None:
        what = "the run to initialize from was trained in named directions"
        # A run that restored lines, en:en and de:de, goes on to translate from one of its languages into the next.
        languages = list(dict.fromkeys(str(name).partition(":")[2] for name in known))
        shown = ":".join(languages[:2]) if data.get("denoise") and len(languages) > 1 else known[0]
        raise UsageError(what, where=DIRECTIONS, help=f"name the direction: --pair {shown} SRC TGT")


def _vocabulary_sizes(checkpoint: Checkpoint, config: TranslationConfig) -> tuple[int, int]:
    """Return both vocabulary sizes; raise ``RunError`` if the weights are too few."""
    src, tgt = (vocabulary.vocab_size for vocabulary in read_vocabularies(checkpoint))
    check_file_holds_weights(checkpoint, config.model, (src, tgt))
    return src, tgt


TASK = TranslationTask()
