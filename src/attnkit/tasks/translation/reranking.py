"""Reranking of a beam's hypotheses by a run of the opposite direction.

A hypothesis y of a source x is ranked by log p(y|x) / t^α + λ log p(x|y) / s^α. The lengths t of y and s of x are in
tokens, ends included. α is the length penalty of the search, whose score is the first term. With its default 1 this is
equation 4 of Yee et al. 2019 (Simple and Effective Noisy Channel Modeling for Neural Machine Translation) without the
language model. The reversed run reads plain text: its vocabulary need not be that of the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.hypothesis import Hypothesis, ReverseScore
from attnkit.engine.engine_choice import Engine
from attnkit.engine.run_summary import find_languages
from attnkit.engine.search_backend import Found, LineSegment, Rerank
from attnkit.errors import UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.tasks.translation.directions import USUAL, LanguagePair, find_direction, has_choice, languages_of
from attnkit.tasks.translation.engines import EngineSearch
from attnkit.tasks.translation.inline_text import InlineText
from attnkit.tasks.translation.loading import OpenedRun, open_run
from attnkit.tasks.translation.score import PairScore, score_pairs
from attnkit.text.inline_symbols import PLAIN, without_annotations
from attnkit.text.tags import TranslationDirection, leading_code

if TYPE_CHECKING:
    from attnkit.tasks.translation.second_search import Pipeline

DEFAULT_WEIGHT = 0.5  #: of the reversed score: the best on a development set, see `benchmarks/reranking.py`
MAX_WEIGHT = 1e6


def open_reranker(
    run: Path,
    weight: float | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    engine: Engine = "auto",
    threads: int | None = None,
    *,
    notify: Callable[[str], None] = lambda text: None,
) -> Reranker:
    """Open a reversed run, without its weights; None weighs it by ``DEFAULT_WEIGHT``.

    Raises:
        RunError: the run is missing, damaged or of another task.
        UsageError: the weight is negative or not finite.
    """
    weight = DEFAULT_WEIGHT if weight is None else weight
    if not 0 <= weight <= MAX_WEIGHT:
        what = f"the weight of a reversed run is a number from 0 to {MAX_WEIGHT:,.0f}, not {weight:g}"
        raise UsageError(what, where="rerank_weight", help="leave it out for the default")
    opened = open_run(run)
    for warning in opened.warnings:
        notify(warning)
    searcher = EngineSearch([opened], device, precision, engine=engine, threads=threads, notify=notify)
    return Reranker(opened, searcher, weight)


class Reranker:
    """Ranks the hypotheses of a beam by both directions."""

    def __init__(self, run: OpenedRun, searcher: EngineSearch, weight: float) -> None:
        self.run, self.weight = run, weight
        self._searcher = searcher

    def load(self) -> None:
        """Load the weights; raise ``RunError`` if they are damaged."""
        self._searcher.load_scorer()

    def replicate(self) -> Reranker:
        """Return a reranker with the same weights, and working memory of its own."""
        return Reranker(self.run, self._searcher.replicate(), self.weight)

    def prepare(self, pipeline: Pipeline, config: SearchConfig, languages: LanguagePair) -> Rerank:
        """Return what reranks the hypotheses of a search in the pipeline's direction.

        ``languages`` are those that the user has named. Raises ``UsageError`` if the search has no beam, or the run is
        not of the opposite direction.
        """
        if config.sampling or config.beam_size < 2:
            given = "sampling has none" if config.sampling else "greedy search has a single hypothesis"
            help = "leave out --sampling" if config.sampling else "add --beam-size 5"
            raise UsageError(f"reranking needs a beam; {given}", where=str(self.run.path), help=help)
        if not has_choice(self.run):
            own = fingerprint_of(self.run.files)
            if any(fingerprint_of(run.files) == own for run in pipeline.runs):
                help = "give a run that was trained with --src and --tgt exchanged"
                raise UsageError("a run cannot rerank its own translations", where=str(self.run.path), help=help)
        direction = find_opposite(self.run, named_languages(pipeline.runs[0], languages, pipeline.direction))
        tokenizers = pipeline.src_tokenizer, pipeline.tgt_tokenizer
        ways = TranslationDirection(*tokenizers), direction
        return partial(self._rerank, *ways, config.length_penalty)

    def _rerank(
        self,
        forward: TranslationDirection,
        direction: TranslationDirection,
        alpha: float,
        parts: Sequence[LineSegment],
        found: Found,
    ) -> Found:
        """Return the hypotheses of each segment in their new order, with both scores."""
        sources = [_plain_source(part, forward) for part in parts]
        ids = [hypothesis.ids for hypotheses in found for hypothesis in hypotheses]
        texts = iter(forward.tgt_tokenizer.decode(ids))
        groups = [
            [((part.masked or PLAIN).restore(next(texts)).replace("\n", " "), source) for _ in hypotheses]
            for part, source, hypotheses in zip(parts, sources, found, strict=True)
        ]
        # A segment with a pair that exceeds the positions of the reversed model keeps its order.
        is_read = [self._fits(direction, pairs) for pairs in groups]
        readable = [pair for own, fits in zip(groups, is_read, strict=True) if fits for pair in own]
        scores = iter(self._score(direction, readable))
        ranked = []
        for hypotheses, fits in zip(found, is_read, strict=True):
            own = list(hypotheses)
            if fits:
                own = [replace(one, reverse=_reverse_score(next(scores), alpha)) for one in hypotheses]
                own.sort(key=self._place)  # stable: ties keep the order of the search
            ranked.append(own)
        return ranked

    def _score(self, direction: TranslationDirection, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        scorer, device = self._searcher.load_scorer()
        return list(score_pairs(self.run, scorer, device, pairs, direction=direction))

    def _fits(self, direction: TranslationDirection, pairs: Sequence[tuple[str, str]]) -> bool:
        """Return whether the reversed model has positions for all of these pairs."""
        longest = self.run.config.model.max_positions
        if longest is None:
            return True
        inline = InlineText(self.run.config.data, direction.tgt_tokenizer)
        masked = [(inline.mask(source), target) for source, target in pairs]
        read = direction.src_tokenizer.encode([one.text for one, _ in masked])
        written = direction.tgt_tokenizer.encode([one.mask_other(target) for one, target in masked])
        return max(len(direction.tag) + len(ids) for ids in read) < longest > max(map(len, written))

    def _place(self, hypothesis: Hypothesis) -> float:
        """Return the key by which hypotheses are sorted, smallest first."""
        assert hypothesis.reverse is not None
        total = hypothesis.score + (self.weight and self.weight * hypothesis.reverse.score)  # 0 of -inf is no number
        return math.inf if math.isnan(total) else -total


def _plain_source(part: LineSegment, forward: TranslationDirection) -> str:
    """Return the text of a segment without what only its own model reads."""
    masked = part.masked or PLAIN
    text = without_annotations(part.text) if masked.has_symbols else part.text
    return masked.restore(text.removeprefix(leading_code(forward.src_tokenizer, text)))


def _reverse_score(score: PairScore, alpha: float) -> ReverseScore:
    return ReverseScore(score.log_prob, score.log_prob / score.n_tokens**alpha)


def named_languages(run: OpenedRun, languages: LanguagePair, direction: TranslationDirection) -> LanguagePair:
    """Return the languages of a run's direction, as far as anything names them.

    These are codes, tags and the languages that the user has named, or the suffixes of the training files.
    """
    data = run.config.data
    if direction.name:
        return languages_of(direction.name)
    if data.directions is None:
        known = find_languages(data)
        return languages_of(known[0]) if known and known[0].count(":") == 1 else USUAL
    sources = {pair.source_language for pair in data.training_pairs if pair.target_language == direction.tgt_lang}
    only = next(iter(sources)) if len(sources) == 1 else None
    return LanguagePair(languages.src or only, direction.tgt_lang)


def find_opposite(run: OpenedRun, languages: LanguagePair) -> TranslationDirection:
    """Return the direction of a run that reverses the translation between languages.

    Raises ``UsageError`` if the run has no such direction, or has several and the languages are not known.
    """
    wanted = LanguagePair(languages.tgt, languages.src)
    if has_choice(run):
        try:
            return find_direction(run, wanted)
        except UsageError as error:
            what = f"this run cannot reverse {_arrow(languages)}: {error.what}"
            help = "choose another run" if all(languages) else "name the languages by --src-lang and --tgt-lang"
            raise UsageError(what, where=str(run.path), help=help) from None
    direction = find_direction(run)
    own = named_languages(run, USUAL, direction)
    if any(one and other and differ(one, other) for one, other in zip(own, wanted, strict=True)):
        what = f"this run translates {_arrow(own)}; the reverse of {_arrow(languages)} is {_arrow(wanted)}"
        raise UsageError(what, where=str(run.path), help="choose a run of the opposite direction")
    return direction


def differ(one: str, other: str) -> bool:
    """Return whether two codes name different languages, as far as they tell.

    Codes of different lengths, such as ``de`` and ``deu``, may name the same.

    >>> differ("de", "en"), differ("pt-BR", "pt"), differ("de", "deu_Latn")
    (True, False, False)
    """
    bases = [re.split("[-_]", code.lower())[0] for code in (one, other)]
    return bases[0] != bases[1] and len(bases[0]) == len(bases[1])


def _arrow(languages: LanguagePair) -> str:
    src, tgt = (language or "?" for language in languages)
    return f"{src} to {tgt}" if any(languages) else "an unknown direction"
