"""Loss and evaluation of replaced-token detection (ELECTRA: Clark et al. 2020).

A generator fills the masks, and an encoder predicts for each token whether it was replaced. Letters: B rows, T tokens
of a row, N masked tokens, E width of the embeddings.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attnkit.data.language_modeling import LanguageModelBatch
from attnkit.engine.events import Sample
from attnkit.engine.loading import LoadedModel
from attnkit.engine.seq2seq import sample_indices
from attnkit.engine.task import TrainingOutcome
from attnkit.models.electra import Electra
from attnkit.protocols import PAD_ID
from attnkit.tasks.language_modeling.config import MASK
from attnkit.tasks.language_modeling.evaluate import LanguageEvaluation, features, layout_of
from attnkit.training.losses import LossTerm, linear_cross_entropy

_SAMPLE_TOKENS = 60  # tokens of a sample


class Detection(NamedTuple):
    """A batch after the generator has filled its masks."""

    features: Tensor  #: (N, E) inputs of the generator's output layer at the masks
    ids: Tensor  #: (B, T) input of the encoder
    logits: Tensor  #: (B, T) of at least float32; above 0: the token was replaced
    replaced: Tensor  #: (B, T) bool, True at tokens other than those of the text: the generator may be right
    real: Tensor  #: (B, T) bool, False at padding


def detect(model: Electra, batch: LanguageModelBatch) -> Detection:
    """Fill the masks of a batch by the generator, and look for the replacements."""
    assert batch.draws is not None
    found, _ = features(model.generator, batch)
    text = batch.ids.clone()
    text.view(-1)[batch.chosen] = batch.targets
    ids = model.replace(text, found, batch.chosen, batch.draws)
    logits = model.detector(model.encoder.hidden(ids, layout_of(batch)))
    wide = torch.promote_types(logits.dtype, torch.float32)
    return Detection(found, ids, logits.to(wide), ids != text, text != PAD_ID)


def electra_loss(
    model: Electra, device: torch.device, smoothing: float, detection_weight: float
) -> Callable[[LanguageModelBatch], dict[str, LossTerm]]:
    """Return the loss: NLL of masked tokens, plus weighted cross-entropy of detection.

    Detection is that of all tokens without padding (section 2 and the original code); label smoothing is that of the
    generator.
    """

    def loss(batch: LanguageModelBatch) -> dict[str, LossTerm]:
        batch = batch.to(device)
        found = detect(model, batch)
        output = model.generator.output
        total, nll = linear_cross_entropy(found.features, output.weight, output.bias, batch.targets, smoothing)
        detection = detection_sum(found)
        return {"nll": LossTerm(total, reported=nll), "detection": LossTerm(detection, weight=detection_weight)}

    return loss


def detection_sum(found: Detection) -> Tensor:
    """Return the binary cross-entropy of detection, summed over all real tokens."""
    wanted = found.replaced[found.real].to(found.logits.dtype)
    return F.binary_cross_entropy_with_logits(found.logits[found.real], wanted, reduction="sum")


@dataclass
class ElectraEvaluation(LanguageEvaluation):
    """Scores on the development set, with the same masks and random numbers each time.

    ``loss`` is the objective of training, the weighted sum of ``generator_loss`` (nats per masked token) and
    ``detection_loss`` (nats per token). The others are in percent: ``precision`` and ``recall`` of replaced tokens,
    ``generator_accuracy`` of masked tokens. A better generator makes detection harder.
    """

    def _score(self, model: Electra) -> tuple[float, dict[str, float]]:  # type: ignore[override]
        guesses = self.tally()
        n_tokens, total = 0, 0.0
        n_replaced = n_flagged = n_right = 0
        for batch in self.batches():
            found = detect(model, batch)
            guesses.add(found.features, batch, model.generator.output)
            flagged = (found.logits > 0) & found.real
            total += float(detection_sum(found))
            n_tokens += int(found.real.sum())
            n_replaced += int(found.replaced.sum())
            n_flagged += int(flagged.sum())
            n_right += int((flagged & found.replaced).sum())
        of_generator = guesses.scores()
        detection = total / max(1, n_tokens)
        assert self.config.task == "mlm"
        scores = {
            "loss": of_generator["loss"] + self.config.electra.detection_weight * detection,
            "detection_loss": detection,
            "precision": 100 * (n_right / max(1, n_flagged)),
            "recall": 100 * (n_right / max(1, n_replaced)),
            "generator_loss": of_generator["loss"],
            "generator_accuracy": of_generator["accuracy"],
        }
        return guesses.n_targets, scores

    def _make_samples(self, model: Electra) -> list[Sample]:  # type: ignore[override]
        """Return samples: what the encoder reads, the text, what it takes for the text.

        Tokens that it takes for replaced are masks in the last.
        """
        mask = self.prepared.tokenizer.token_id(MASK)
        assert mask is not None
        samples: list[Sample] = []
        for index in sample_indices(len(self.prepared.valid), self.config.evaluation.n_samples):
            batch = self._batch(np.array([index]))
            found = detect(model, batch)
            read, text = found.ids.view(-1).cpu(), batch.ids.view(-1).cpu().clone()
            text[batch.chosen.cpu()] = batch.targets.cpu()
            kept = read.masked_fill((found.logits > 0).view(-1).cpu(), mask)
            passages = None if batch.passages is None else batch.passages[0].cpu()
            n = min(_SAMPLE_TOKENS, len(read) if passages is None else int((passages == passages[0]).sum()))
            samples.append((self._decode(read[:n]), self._decode(text[:n]), self._decode(kept[:n])))
        return samples


def electra_warnings(outcome: TrainingOutcome) -> Iterator[str]:
    """Yield a warning if the encoder detects no replaced token."""
    if outcome.scores.get("recall") == 0:
        yield "the encoder takes no token for replaced\n  train longer, or at a lower optimization.learning_rate"


def masked_language_model(opened: LoadedModel) -> LoadedModel:
    """Return a loaded run as a masked language model: of an ELECTRA, its generator."""
    if not isinstance(opened.model, Electra):
        return opened
    own = opened.config.model.generator_architecture(opened.config.electra.generator_size)
    return replace(opened, model=opened.model.generator, config=opened.config.model_copy(update={"model": own}))
