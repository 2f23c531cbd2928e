"""Evaluation on the development set: loss, perplexity, BLEU, chrF and samples."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from attnkit.checkpoints.weights import tensors_of
from attnkit.compiled.packed_transformer import PackedTransformer
from attnkit.compiled.search import CompiledSearch, reason_against_model, reason_against_search
from attnkit.data.config import DataConfig
from attnkit.data.directions import bleu_of
from attnkit.data.loader import Batching, make_batches
from attnkit.data.pairs import Pairs
from attnkit.decoding.config import SearchConfig
from attnkit.engine.engine_choice import is_cpu, number_of_threads
from attnkit.engine.search_backend import (
    LineSegment,
    SearchBackend,
    SearchJob,
    WholeSearch,
    can_search_whole,
    exclude_padding_ids,
)
from attnkit.engine.seq2seq import LocalSearch, greedy_ids, sample_indices
from attnkit.engine.task import until_stopped
from attnkit.errors import SystemFailure
from attnkit.kernels.native import Library
from attnkit.metrics.bleu import corpus_bleu, corpus_chrf
from attnkit.models.config import TransformerConfig
from attnkit.models.linear import pack, without_dropout
from attnkit.models.translation import TranslationModel
from attnkit.runtime.signals import release_free_memory
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.data import TranslationData
from attnkit.text.sentences import split_ids
from attnkit.text.tags import named_direction
from attnkit.training.losses import linear_cross_entropy

_BATCH_TOKENS = 4096
_WINDOW = 512  #: lines that compiled loops translate before they notice a requested stop
_MIN_LINES = 200  #: development lines below which loading compiled loops takes longer than they save


def greedy_settings(search: SearchConfig) -> SearchConfig:
    """Return the settings for the development set: greedy, with the same constraints."""
    return search.model_copy(
        update={"beam_size": 1, "num_hypotheses": 1, "sampling": False, "coverage_penalty": 0.0, "scores": False}
    )


def compiled_form(config: TranslationConfig, n_lines: int) -> TransformerConfig | None:
    """Return the model's configuration if compiled loops search the development set."""
    model = config.model
    if n_lines < _MIN_LINES or not is_cpu(config.device):
        return None
    if reason_against_model(model) or reason_against_search(greedy_settings(config.decoding)):
        return None
    assert isinstance(model, TransformerConfig)
    return model


@dataclass
class TranslationEvaluation:
    """Evaluation of a model on the development set; keeps the latest samples."""

    prepared: TranslationData
    search: SearchConfig
    device: torch.device
    n_samples: int
    max_source: int = 256  #: maximum source tokens; longer lines are translated in segments, as by ``translate``
    compiled: TransformerConfig | None = None
    """Configuration of a model that is searched in compiled loops; None: torch searches."""
    stop: Callable[[], bool] | None = None  #: polled between batches or windows; True cancels the evaluation
    has_adapters: bool = False  #: whether the model has adapters, which are merged for the evaluation
    symbols: DataConfig | None = None  #: settings of placeholders and annotations, if the model has learned any
    samples: list[tuple[str, str, str]] = field(default_factory=list)  #: (source, reference, translation)
    _library: Library | None = field(default=None, init=False, repr=False)  #: compiled loops, loaded once

    def __call__(self, model: TranslationModel) -> dict[str, float]:
        """Return ``bleu``, ``chrf`` (0 to 100), ``loss`` (nats per token), ``perplexity``."""
        if self.has_adapters:
            from attnkit.models.lora_layers import merged_copy  # imported here: most models have no adapters

            model = merged_copy(model)
        with without_dropout(model), torch.inference_mode():
            # A copy with weights packed for fast matrix products. Compiled loops pack their own: never two at a time,
            # as each is as large as the model.
            packed = pack(model)
            loss = development_loss(packed, self.prepared.valid, self.device, self.stop)
            if self.compiled is None:
                model = packed
            del packed
            release_free_memory()
            hypotheses = self.translate(model)
        references = self.prepared.valid_tgt
        picks = sample_indices(len(references), self.n_samples)
        self.samples = [(self.prepared.valid_src[i], references[i], hypotheses[i]) for i in picks]
        own = scores_by_direction(hypotheses, references, self.prepared.valid_directions)
        return {  # sorted by name, as a resumed run reads them from its checkpoint
            **own,
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
        }

    def translate(self, model: TranslationModel) -> list[str]:
        """Return greedy translations of the development set's source side."""
        vocabularies = self.prepared.vocabularies
        lines, restore = self._lines()
        parts: list[LineSegment] = []
        names = self.prepared.valid_directions
        for name in dict.fromkeys(names):
            direction = named_direction(vocabularies, name)
            numbers = [number for number, other in enumerate(names) if other == name]
            encoded = direction.src_tokenizer.encode([lines[number] for number in numbers])
            tag, code, limit = [*direction.tag], direction.code, self.max_source - len(direction.tag)
            for number, ids in zip(numbers, encoded, strict=True):
                pieces = split_ids(lines[number], ids, limit, direction.src_tokenizer)
                parts += [LineSegment(number, k, tag + piece, code) for k, piece in enumerate(pieces)]
        greedy = greedy_settings(exclude_padding_ids(self.search, vocabularies.tgt))
        searcher: SearchBackend | None = None
        if self.compiled is not None and self._fits(self.compiled, parts, greedy):
            searcher = self._compiled_searcher(self.compiled, model)
        searcher = searcher or LocalSearch([pack(model)], self.device)
        n_given = max((len(part.prefix) for part in parts), default=0)  # the code of a language
        found = greedy_ids(searcher, parts, greedy, self.stop, n_given)
        texts: list[list[str]] = [[] for _ in lines]
        for part, text in zip(parts, vocabularies.tgt.decode(found), strict=True):
            texts[part.line].append(text.replace("\n", " "))
        return restore([" ".join(pieces) for pieces in texts])

    def _lines(self) -> tuple[list[str], Callable[[list[str]], list[str]]]:
        """Return the lines as the model reads them, and what completes their translations."""
        lines = self.prepared.valid_src
        if self.symbols is None:
            return lines, lambda texts: texts
        from attnkit.tasks.translation.inline_text import InlineText  # imported here: most runs have no symbols

        inline = InlineText(self.symbols, self.prepared.vocabularies.tgt)
        masked = [inline.mask(line) for line in lines]
        return [one.text for one in masked], lambda texts: [
            one.restore(text) for one, text in zip(masked, texts, strict=True)
        ]

    def _fits(self, config: TransformerConfig, parts: Sequence[LineSegment], search: SearchConfig) -> bool:
        """Return whether compiled loops have this search, for all of these lengths."""
        longest = max((search.limit(len(part.ids) + 1) for part in parts), default=0)
        longest = max(longest, search.min_length + 1)
        within = config.max_positions is None or longest <= config.max_positions
        return within and can_search_whole(SearchJob(search), parts)

    def _compiled_searcher(self, config: TransformerConfig, model: TranslationModel) -> SearchBackend | None:
        """Return a search with the weights of the model, None if it cannot be compiled."""
        weights = {name: tensor.detach().numpy() for name, tensor in tensors_of(model).items()}
        try:
            packed = PackedTransformer(config, weights, self.prepared.vocabularies.tgt.n_words)
            n_threads = number_of_threads(torch.get_num_threads())
            # A new one each time: packed weights and working memory are not kept while training goes on.
            search = CompiledSearch(packed, n_threads=n_threads, library=self._library)
        except SystemFailure:  # no compiler, or no memory for it; the next evaluation would fail, too
            self.compiled = None
            return None
        self._library = search.library
        return WholeSearch(search, _WINDOW)


def scores_by_direction(
    hypotheses: Sequence[str], references: Sequence[str], directions: Sequence[str]
) -> dict[str, float]:
    """Return ``bleu`` and ``chrf`` (0 to 100), and BLEU of each of several directions.

    Of several directions ``bleu`` and ``chrf`` are the means: texts of several languages have no common score.
    """
    texts: dict[str, tuple[list[str], list[str]]] = {}
    for direction, hypothesis, reference in zip(directions, hypotheses, references, strict=True):
        own = texts.setdefault(direction, ([], []))
        own[0].append(hypothesis)
        own[1].append(reference)
    bleu = {name: corpus_bleu(hyps, [refs]).score for name, (hyps, refs) in texts.items()}
    chrf = [corpus_chrf(hyps, [refs]).score for hyps, refs in texts.values()]
    each = {bleu_of(name): bleu[name] for name in sorted(bleu, key=bleu_of)} if len(bleu) > 1 else {}
    return {"bleu": sum(bleu.values()) / len(bleu), **each, "chrf": sum(chrf) / len(chrf)}


def development_loss(
    model: TranslationModel, pairs: Pairs, device: torch.device, stop: Callable[[], bool] | None = None
) -> float:
    """Return the mean negative log-likelihood per reference token, in nats."""
    total, count = 0.0, 0
    src, tgt = pairs.lengths
    # A batch has at most _BATCH_TOKENS tokens, padding and both sides included, or a single pair.
    grouped = make_batches((2 * np.maximum(src, tgt)).tolist(), Batching(_BATCH_TOKENS, "tokens"))
    for indices in until_stopped(stop, grouped):
        batch = pairs.batch(np.asarray(indices, np.int64)).to(device)
        hidden = model.hidden(batch.src, batch.src_mask, batch.tgt_in).flatten(0, 1)[batch.positions]
        _, nll = linear_cross_entropy(hidden, model.output.weight, model.output.bias, batch.targets, 0.0)
        total += float(nll)
        count += len(batch.targets)
    return total / max(count, 1)
