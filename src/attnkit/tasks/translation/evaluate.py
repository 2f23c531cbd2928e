"""The development set: loss and perplexity of the references, BLEU and chrF of greedy translations, a few samples."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from attnkit.data.loader import Batching, make_batches
from attnkit.data.pairs import Pairs
from attnkit.decoding.config import SearchConfig
from attnkit.engine.seq2seq import LineSegment, LocalSearch, exclude_padding_ids, greedy_ids, sample_indices
from attnkit.engine.task import until_stopped
from attnkit.metrics.bleu import corpus_bleu, corpus_chrf
from attnkit.models.linear import pack, without_dropout
from attnkit.models.translation import TranslationModel
from attnkit.tasks.translation.data import TranslationData
from attnkit.text.long_lines import split_ids
from attnkit.training.losses import linear_cross_entropy

_BATCH_TOKENS = 4096


@dataclass
class TranslationEvaluation:
    """Scores a model on the development set whenever the loop asks; remembers the samples of the last time."""

    prepared: TranslationData
    search: SearchConfig
    device: torch.device
    n_samples: int
    max_source: int = 256  #: tokens; longer lines are translated in parts, as ``translate`` does
    stop: Callable[[], bool] | None = None  #: asked before each batch whether to give it up
    samples: list[tuple[str, str, str]] = field(default_factory=list)  #: (source, reference, translation)

    def __call__(self, model: TranslationModel) -> dict[str, float]:
        """Return ``bleu`` and ``chrf`` (0 to 100), ``loss`` (nats per target token) and ``perplexity``."""
        with without_dropout(model), torch.inference_mode():
            # Its weights in the layout that multiplies fastest; a copy, good for this evaluation alone.
            packed = pack(model)
            loss = development_loss(packed, self.prepared.valid, self.device, self.stop)
            hypotheses = self.translate(packed)
        references = self.prepared.valid_tgt
        picks = sample_indices(len(references), self.n_samples)
        self.samples = [(self.prepared.valid_src[i], references[i], hypotheses[i]) for i in picks]
        return {  # in the order of names, as a resumed run reads them from its checkpoint
            "bleu": corpus_bleu(hypotheses, [references]).score,
            "chrf": corpus_chrf(hypotheses, [references]).score,
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
        }

    def translate(self, model: TranslationModel) -> list[str]:
        """Return greedy translations of the development set."""
        vocabularies = self.prepared.vocabularies
        lines = self.prepared.valid_src
        parts: list[LineSegment] = []
        for number, (line, ids) in enumerate(zip(lines, vocabularies.src.encode(lines), strict=True)):
            pieces = split_ids(line, ids, self.max_source, vocabularies.src)
            parts += [LineSegment(number, k, piece, []) for k, piece in enumerate(pieces)]
        greedy = exclude_padding_ids(self.search, vocabularies.tgt).model_copy(
            update={"beam_size": 1, "num_hypotheses": 1, "sampling": False, "coverage_penalty": 0.0, "scores": False}
        )
        found = greedy_ids(LocalSearch([model], self.device), parts, greedy, self.stop)
        texts: list[list[str]] = [[] for _ in lines]
        for part, text in zip(parts, vocabularies.tgt.decode(found), strict=True):
            texts[part.line].append(text.replace("\n", " "))
        return [" ".join(pieces) for pieces in texts]


def development_loss(
    model: TranslationModel, pairs: Pairs, device: torch.device, stop: Callable[[], bool] | None = None
) -> float:
    """Return the mean negative log-likelihood of the references' tokens, in nats."""
    total, count = 0.0, 0
    src, tgt = pairs.lengths
    # A batch has at most so many padded tokens on both sides, or one pair.
    grouped = make_batches((2 * np.maximum(src, tgt)).tolist(), Batching(_BATCH_TOKENS, "tokens"))
    for indices in until_stopped(stop, grouped):
        batch = pairs.batch(np.asarray(indices, np.int64)).to(device)
        hidden = model.hidden(batch.src, batch.src_mask, batch.tgt_in).flatten(0, 1)[batch.positions]
        _, nll = linear_cross_entropy(hidden, model.output.weight, model.output.bias, batch.targets, 0.0)
        total += float(nll)
        count += len(batch.targets)
    return total / max(count, 1)
