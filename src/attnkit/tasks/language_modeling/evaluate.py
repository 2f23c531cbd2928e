"""Loss and evaluation of language models on masked or next tokens.

Letters: B rows, T tokens of a row, N predicted tokens, D model width, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.data.language_modeling import LanguageModelBatch
from attnkit.data.loader import Batching, make_batches
from attnkit.data.packed_batches import CorpusMixture
from attnkit.data.store import Store
from attnkit.engine.events import Sample
from attnkit.engine.seq2seq import sample_indices
from attnkit.engine.task import Stop, until_stopped
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout
from attnkit.models.linear import without_dropout
from attnkit.tasks.language_modeling.config import MASK, ClmConfig, MlmConfig
from attnkit.tasks.language_modeling.data import PreparedText
from attnkit.training.losses import LossTerm, linear_cross_entropy

_BATCH_TOKENS = 4096
_MAX_LOGITS = 1 << 24  #: maximum number of logits in memory, but at least those of one token
_SAMPLE_TOKENS = 60  # tokens of a sample
EVALUATION_EPOCH = -1  #: epoch number that determines the masked tokens of every evaluation
_MAX_TRIES = 50  #: further epoch numbers to try if no token is masked, for example in few short documents
_COUNTED, _MAX_COUNTED = 1 << 20, 64  # tokens of a block whose frequencies are counted, and blocks
_MAX_EXPONENT = 700.0  # larger exponents overflow


def layout_of(batch: LanguageModelBatch) -> PackedLayout:
    """Return the attention layout of a batch: which tokens attend to each other."""
    if batch.passages is None:
        return PackedLayout.unpacked(len(batch.ids))
    return PackedLayout.packed(batch.n_unmixed, batch.passages, batch.bounds)


def features(model: Bert | Gpt, batch: LanguageModelBatch) -> tuple[Tensor, Tensor | None]:
    """Return output-layer inputs (N, D), and hidden states (B, T, D) for pairs."""
    layout = layout_of(batch)
    if isinstance(model, Gpt):
        return _pick(model.hidden(batch.ids, layout), batch), None
    if batch.follows is None:
        return model.predictor(model.hidden(batch.ids, layout, batch.segments, batch.chosen)), None
    hidden = model.hidden(batch.ids, layout, batch.segments)
    return model.predictor(_pick(hidden, batch)), hidden


def _pick(hidden: Tensor, batch: LanguageModelBatch) -> Tensor:
    return hidden.flatten(0, 1).index_select(0, batch.chosen)


def language_loss(
    model: Bert | Gpt, device: torch.device, smoothing: float
) -> Callable[[LanguageModelBatch], dict[str, LossTerm]]:
    """Return the loss: NLL of predicted tokens, and of next-sentence labels if any."""

    def loss(batch: LanguageModelBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        found, hidden = features(model, batch)
        total, nll = linear_cross_entropy(found, model.output.weight, model.output.bias, batch.targets, smoothing)
        terms = {"nll": LossTerm(total, reported=nll)}
        if batch.follows is not None:
            logits = next_logits(model, hidden)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            terms["next"] = LossTerm(F.cross_entropy(logits, batch.follows, reduction="sum"))
        return terms

    return loss


def unigram_loss(prepared: PreparedText) -> float:
    """Return the loss of a model that knows only the frequencies of training tokens.

    In nats per token of the validation text. Every token counts once more than it occurs, so that none has no
    probability. Of long texts a sample is counted.
    """
    train, valid = (_token_counts(rows.store).astype(float) for rows in (prepared.train, prepared.valid))
    log_probs = np.log((train + 1) / (train + 1).sum())  # (V,)
    return float(-(valid * log_probs).sum() / valid.sum())


def _token_counts(store: Store) -> npt.NDArray[np.int64]:
    """Return how often each token occurs in blocks spread over a text, (V,)."""
    n_blocks = -(-len(store.ids) // _COUNTED)
    counts = np.zeros(store.vocab_size, np.int64)
    for number in range(0, n_blocks, -(-n_blocks // _MAX_COUNTED)):
        begin, end = number * _COUNTED, min((number + 1) * _COUNTED, len(store.ids))
        counts += np.bincount(store.ids[begin:end], minlength=store.vocab_size)
        store.release(begin, end)
    return counts


def next_logits(model: Bert | Gpt, hidden: Tensor | None) -> Tensor:
    """Return the next-sentence logits (B, 2) of pairs: follows, does not follow."""
    assert isinstance(model, Bert) and model.next_sentence is not None and hidden is not None
    logits: Tensor = model.next_sentence(hidden)
    return logits


class TokenTally:
    """Loss and accuracies of predicted tokens, counted batch by batch and per corpus."""

    def __init__(self, mixture: CorpusMixture, n_corpora: int) -> None:
        self._mixture = mixture
        self._counts = np.zeros((3, n_corpora))  # per corpus: targets, targets ranked first, targets in the top five
        self._nll = 0.0

    @property
    def n_targets(self) -> float:
        """Return the number of predicted tokens."""
        return float(self._counts[0].sum())

    def add(self, found: Tensor, batch: LanguageModelBatch, output: nn.Linear) -> None:
        """Count the targets of a batch, given the inputs (N, D) of the output layer."""
        size = max(1, _MAX_LOGITS // output.out_features)
        ranks, nll = np.empty(0, np.int64), 0.0
        for rows, targets in zip(torch.split(found, size), torch.split(batch.targets, size), strict=True):
            logits = output(rows).float()  # (n, V)
            right = logits.gather(1, targets[:, None])
            nll += float((logits.logsumexp(1) - right[:, 0]).sum(dtype=torch.float64))
            # >=, not >: identical logits for all tokens must not count as correct.
            ranks = np.append(ranks, ((logits >= right).sum(1) - 1).cpu().numpy())
        self._nll += nll
        corpora = self._mixture.corpus(batch.numbers)
        corpora = corpora[batch.chosen.cpu().numpy() // batch.ids.shape[1]]  # (N,)
        for count, limit in zip(self._counts, (np.inf, 1, 5), strict=True):
            count += np.bincount(corpora[ranks < limit], minlength=len(count))

    def scores(self) -> dict[str, float]:
        """Return loss, perplexity and accuracies; without targets, loss is NaN."""
        n_tokens, n_first, n_fifth = self._counts.sum(1).tolist()
        loss = self._nll / n_tokens if n_tokens else math.nan
        scores = {
            "loss": loss,
            "perplexity": math.exp(min(loss, _MAX_EXPONENT)),
            "accuracy": 100 * (n_first / max(1.0, n_tokens)),
            "top_5": 100 * (n_fifth / max(1.0, n_tokens)),
        }
        if self._counts.shape[1] > 1:
            accuracies = 100 * self._counts[1] / np.maximum(1, self._counts[0])
            scores |= {f"accuracy_{number}": float(value) for number, value in enumerate(accuracies, 1)}
        return scores


@dataclass
class LanguageEvaluation:
    """Scores on the development set, with the same masked tokens each time."""

    prepared: PreparedText
    config: MlmConfig | ClmConfig
    device: torch.device
    stop: Stop | None = None
    samples: list[Sample] = field(default_factory=list)  #: (input, text, text with the model's predictions)
    epoch: int = EVALUATION_EPOCH  #: epoch number that determines the masked tokens

    def __call__(self, model: Bert | Gpt) -> dict[str, float]:
        """Return the evaluation metrics; the loss is NaN if no token can be masked."""
        with without_dropout(model), torch.inference_mode():
            n_targets, scores = self._score(model)
            while not n_targets and self.epoch > EVALUATION_EPOCH - _MAX_TRIES:
                self.epoch -= 1
                n_targets, scores = self._score(model)
            self.samples = self._make_samples(model)
        return scores

    def _score(self, model: Bert | Gpt) -> tuple[float, dict[str, float]]:
        """Return the number of targets and the metrics; without targets, loss is NaN."""
        tally, n_pairs, n_right_pairs = self.tally(), 0, 0
        for batch in self.batches():
            found, hidden = features(model, batch)
            tally.add(found, batch, model.output)
            if batch.follows is not None:
                n_pairs += len(batch.follows)
                n_right_pairs += int((next_logits(model, hidden).argmax(1) == batch.follows).sum())
        scores = tally.scores()
        if n_pairs:
            scores["next_accuracy"] = 100 * n_right_pairs / n_pairs
        return tally.n_targets, scores

    def tally(self) -> TokenTally:
        """Return an empty tally of the predictions of tokens."""
        return TokenTally(self.prepared.valid.mixture, len(self.config.data.valid_files or self.config.data.files))

    def batches(self) -> Iterator[LanguageModelBatch]:
        """Yield the batches to score, with their masked tokens."""
        lengths = self.prepared.valid.lengths[0]
        scored = sample_indices(len(lengths), self.config.data.valid_rows or len(lengths))
        batches = make_batches(lengths[scored].tolist(), Batching(_BATCH_TOKENS, "tokens"))
        for indices in until_stopped(self.stop, batches):
            yield self._batch(scored[np.asarray(indices, np.int64)])

    def _batch(self, indices: npt.NDArray[np.int64]) -> LanguageModelBatch:
        return self.prepared.valid.batch(indices, self.config.data.held_out_seed, self.epoch).to(self.device)

    def _make_samples(self, model: Bert | Gpt) -> list[Sample]:
        """Return samples: the first tokens of a few rows, with predictions."""
        valid = self.prepared.valid
        samples: list[Sample] = []
        for index in sample_indices(len(valid), self.config.evaluation.n_samples):
            batch = self._batch(np.array([index]))
            guessed = [int(model.output(row[None]).argmax()) for row in features(model, batch)[0]]
            read = batch.ids.reshape(-1).cpu()
            text, predicted = read.clone(), read.clone()
            chosen = batch.chosen.cpu()
            text[chosen] = batch.targets.cpu()
            predicted[chosen] = torch.tensor(guessed, dtype=torch.int64)
            passages = None if batch.passages is None else batch.passages[0].cpu()
            n = min(_SAMPLE_TOKENS, len(read) if passages is None else int((passages == passages[0]).sum()))
            samples.append((self._decode(read[:n]), self._decode(text[:n]), self._decode(predicted[:n])))
        return samples

    def _decode(self, ids: Tensor) -> str:
        tokenizer = self.prepared.tokenizer
        step = -1 if isinstance(self.config, ClmConfig) and self.config.direction == "right-to-left" else 1
        text = tokenizer.decode([ids.tolist()[::step]])[0]
        # Subwords include their leading space, symbols do not.
        return text if tokenizer.config.kind in ("char", "word") else text.replace(MASK, f" {MASK}").strip()
