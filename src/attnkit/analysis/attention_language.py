"""Attention weights and predictions of BERT, GPT and fine-tuned models.

Letters: L layers, H heads, T tokens of a row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from attnkit.analysis.attention_request import MAX_WEIGHTS, AttentionQuery, AttentionReport, pair_lines
from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.text_classification import text_batch
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.predict import PredictRequest
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.models.bert import Bert
from attnkit.models.layers import PackedLayout
from attnkit.plotting.attention_maps import AttentionExample, AttentionMap
from attnkit.protocols import BOS_ID, EOS_ID, Run, TokenRuns
from attnkit.tasks.finetuning.predict_token_classification import TokenClassificationPredictor
from attnkit.tasks.finetuning.question_answering import QuestionAnsweringPredictor
from attnkit.tasks.finetuning.question_answering_data import QaExamples
from attnkit.tasks.finetuning.text_classification import TextClassificationPredictor
from attnkit.tasks.finetuning.token_classification import word_rows
from attnkit.tasks.language_modeling.config import MASK
from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline, check_length
from attnkit.text.masked_lines import encode_masked
from attnkit.text.squad import Paragraph, Question
from attnkit.text.token_runs import token_runs
from attnkit.text.tokenizer import Tokenizer

N_GUESSES = 3  #: predicted tokens shown per mask, and after a prompt
_PAIR_HELP = 'add --pair "the second text"'


@dataclass(frozen=True)
class PredictedRow:
    """One row that a model reads, with what it predicts from it."""

    ids: Sequence[int]  #: T token ids, special tokens included
    source: str
    target: str
    sides: tuple[str, str]
    facts: dict[str, Any]
    segments: torch.Tensor | None = None  #: (1, T) int64; None: all 0


Reader = Callable[[int, str, str | None], PredictedRow]  #: line number, text and second text -> row and prediction


def language_attention(
    query: AttentionQuery, checkpoint: Checkpoint, task: str, warnings: list[str]
) -> AttentionReport:
    """Return the attention of a language model's run for each line of a request.

    Raises ``UsageError`` for a second text to a model of single texts, ``DataError`` for a line that is blank, too long
    or lacks its second text.
    """
    if query.pairs and task not in ("text-classification", "question-answering"):
        what = f"a run of task '{task}' reads one text per line"
        raise UsageError(what, where="--pair", help="leave out --pair")
    opened = load_model(query.run, task, device=query.device, checkpoint=checkpoint.name)
    tokenizer, model = read_tokenizer(checkpoint), opened.config.model
    later: list[str] = []
    read = _READERS[task](opened, tokenizer, later.append)
    kind = "GPT" if task == "clm" else "BERT"
    facts = {
        "run": str(opened.path),
        "checkpoint": checkpoint.name,
        "model": f"{kind}, task {task}, layers: {model.n_layers}, heads: {model.n_heads}",
    }

    def examples() -> Iterator[AttentionExample]:
        for number, text, second in pair_lines(query):
            if not text.strip():
                raise DataError("the line is blank", where=f"source:{number}")
            row = read(number, text, second)
            yield AttentionExample(
                row.source, row.target, [self_attention(opened, tokenizer, row)], facts=row.facts, sides=row.sides
            )

    return AttentionReport(facts, examples(), tuple(warnings), lambda: later)


@torch.inference_mode()
def self_attention(opened: LoadedModel, tokenizer: Tokenizer, row: PredictedRow) -> AttentionMap:
    """Return the attention map (L, H, T, T) of a row, in the order of the text."""
    model: Any = opened.model if hasattr(opened.model, "attention_weights") else opened.model.encoder
    size = opened.config.model
    if size.n_layers * size.n_heads * len(row.ids) ** 2 > MAX_WEIGHTS:
        what = f"a text of {len(row.ids):,} tokens has more than {MAX_WEIGHTS:,} weights"
        raise DataError(what, where=row.source[:40], help="shorten it")
    ids = torch.tensor([list(row.ids)], device=opened.device)
    given = () if row.segments is None else (row.segments.to(opened.device),)
    (found,) = model.attention_weights(ids, PackedLayout.unpacked(1), *given).values()
    weights = found[0].float().cpu().numpy()
    shown = list(row.ids)
    if getattr(opened.config, "direction", "") == "right-to-left":
        # The row begins with the end of the text.
        weights, shown = np.ascontiguousarray(weights[:, :, ::-1, ::-1]), shown[::-1]
    names = tokenizer.tokens(shown)
    runs = token_runs(tokenizer, shown)
    if isinstance(model, Bert):
        names, runs = name_special(shown, names, runs)
    kind = "self" if isinstance(model, Bert) else "causal"
    return AttentionMap(kind, names, names, weights, query_runs=runs, key_runs=runs)


def name_special(ids: Sequence[int], names: Sequence[str], runs: TokenRuns) -> tuple[list[str], TokenRuns]:
    """Return tokens and their runs with BERT's names of BOS and EOS."""
    special = {BOS_ID: "[CLS]", EOS_ID: "[SEP]"}
    named = [special.get(id, name) for id, name in zip(ids, names, strict=True)]

    def rename(part: Sequence[Run]) -> list[Run]:
        starts = accumulate((n for _, n in part), initial=0)
        return [(special.get(ids[start], text), n) for (text, n), start in zip(part, starts, strict=False)]

    return named, TokenRuns(rename(runs.characters), rename(runs.words), runs.special)


def _masked(opened: LoadedModel, tokenizer: Tokenizer, warn: Callable[[str], None]) -> Reader:
    """Return the reader of a masked language model: fills [MASK], if there is one."""
    filler = FillMaskPipeline(opened, N_GUESSES)

    def read(number: int, text: str, second: str | None) -> PredictedRow:
        ids = [BOS_ID, *encode_masked(tokenizer, text, MASK), EOS_ID]
        check_length(len(ids), filler.max_length, f"source:{number}")
        if filler.mask not in ids:
            return PredictedRow(ids, text, "", ("Text", ""), {})
        (filled,) = filler.predict([text], [ids])
        facts = {}
        for place, guesses in enumerate(filled.masks, 1):
            name = "mask" if len(filled.masks) == 1 else f"mask_{place}"
            facts[name] = "; ".join(f"{one.piece} {100 * one.probability:.1f} %" for one in guesses)
        return PredictedRow(ids, text, filled.filled, ("Text", "Filled"), facts)

    return read


def _causal(opened: LoadedModel, tokenizer: Tokenizer, warn: Callable[[str], None]) -> Reader:
    """Return the reader of a causal language model: predicts the next token."""
    backwards = opened.config.direction == "right-to-left"

    @torch.inference_mode()
    def read(number: int, text: str, second: str | None) -> PredictedRow:
        (ids,) = tokenizer.encode([text])
        row = [BOS_ID, *(ids[::-1] if backwards else ids)]
        longest = opened.config.model.max_positions
        if longest is not None:
            check_length(len(row), longest, f"source:{number}")
        states = opened.model.hidden(torch.tensor([row], device=opened.device), PackedLayout.unpacked(1))
        best = opened.model.head(states[0, -1]).float().softmax(-1).topk(N_GUESSES)
        names = tokenizer.tokens(best.indices.tolist())
        guesses = "; ".join(f"{name} {100 * p:.1f} %" for name, p in zip(names, best.values.tolist(), strict=True))
        token = best.indices[:1].tolist()
        (continued,) = tokenizer.decode([[*token, *ids] if backwards else [*ids, *token]])
        facts = {"token_before" if backwards else "next_token": guesses}
        return PredictedRow(row, text, continued, ("Text", "Continued"), facts)

    return read


def _labelled(opened: LoadedModel, tokenizer: Tokenizer, warn: Callable[[str], None]) -> Reader:
    """Return the reader of a text classifier: one label per text or pair."""
    classifier = TextClassificationPredictor(opened, PredictRequest(opened.path, []), warn)
    pairs = read_labels(opened.checkpoint).pairs

    def read(number: int, text: str, second: str | None) -> PredictedRow:
        if pairs is not None and pairs != (second is not None):
            what = "this run was trained on pairs of texts" if pairs else "this run was trained on single texts"
            raise UsageError(what, where=f"source:{number}", help=_PAIR_HELP if pairs else "leave out --pair")
        (ids,) = classifier.reader.encode([text], [second])
        (shares,) = classifier.classify([text], [second])
        best = max(range(len(shares)), key=shares.__getitem__)
        segments = text_batch([ids], classifier.reader.separators).segments
        source = text if second is None else f"{text} ||| {second}"
        facts = {"probability": round(shares[best], 4)}
        return PredictedRow(ids, source, classifier.labels[best], ("Text", "Label"), facts, segments)

    return read


def _tagged(opened: LoadedModel, tokenizer: Tokenizer, warn: Callable[[str], None]) -> Reader:
    """Return the reader of a token classifier: one tag per word."""
    tagger = TokenClassificationPredictor(opened, PredictRequest(opened.path, []), warn)

    def read(number: int, text: str, second: str | None) -> PredictedRow:
        words = text.split()
        rows = word_rows(tokenizer, [words], opened.config.max_row_length)
        if len(rows) > 1:
            what = f"the text has more than {opened.config.max_row_length:,} tokens including special tokens"
            raise DataError(what, where=f"source:{number}", help="split the line")
        (tagged,) = tagger.tag([words])
        ids = rows.batch(np.zeros(1, np.int64)).ids[0].tolist()
        return PredictedRow(ids, " ".join(words), " ".join(tagged.tags), ("Text", "Tags"), {})

    return read


def _answered(opened: LoadedModel, tokenizer: Tokenizer, warn: Callable[[str], None]) -> Reader:
    """Return the reader of a question-answering model: a span of the context."""
    reader = QuestionAnsweringPredictor(opened, PredictRequest(opened.path, []), warn)

    def read(number: int, text: str, second: str | None) -> PredictedRow:
        if second is None:
            what, help = "a question needs its context", 'add --pair "the context"'
            raise UsageError(what, where=f"source:{number}", help=help)
        paragraph = Paragraph("", second, (Question("", text, (), False),))
        rows = QaExamples([paragraph], tokenizer, opened.config.windows).rows
        if len(rows) > 1:
            what, help = f"the context takes {len(rows):,} windows; only one can be shown", "shorten the context"
            raise DataError(what, where=f"source:{number}", help=help)
        (answer,) = reader.answer([paragraph])
        batch = rows.batch(np.zeros(1, np.int64))
        facts = {"probability": round(answer.probability, 4)}
        sides = ("Question, context", "Answer")
        source = f"{text} ||| {second}"
        return PredictedRow(batch.ids[0].tolist(), source, answer.text or "(no answer)", sides, facts, batch.segments)

    return read


_READERS: dict[str, Callable[[LoadedModel, Tokenizer, Callable[[str], None]], Reader]] = {
    "mlm": _masked,
    "clm": _causal,
    "text-classification": _labelled,
    "token-classification": _tagged,
    "question-answering": _answered,
}
"""Task -> function that builds the reader of its runs."""
