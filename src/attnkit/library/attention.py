"""Attention weights and comparisons of alignment functions behind calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, overload

import numpy as np

from attnkit.config.arguments import Count, checked
from attnkit.library.files import warn
from attnkit.models.attention.config import AlignmentName, DistributionName
from attnkit.plotting.attention_maps import TITLES, AttentionExample, MapSlice, entropies, to_dict
from attnkit.plotting.html.heat import heat_maps

if TYPE_CHECKING:
    from attnkit.analysis.attention_request import AttentionReport

Weights = list[list[float]]
END = "</s>"


@dataclass(frozen=True, repr=False)
class TranslationAttention(Sequence[Weights]):
    """Cross-attention weights of a translated line, sentence by sentence.

    Item ``i`` has the weights of sentence ``i``. A notebook shows them as maps.

    >>> attention = TranslationAttention([[[0.75, 0.25]]], [["Hund"]], [["dog", "</s>"]])
    >>> attention[0][0]
    [0.75, 0.25]
    """

    weights: list[Weights]
    """Of each sentence: weights (target tokens, source tokens and the end symbol)."""
    target_tokens: list[list[str]]  #: of each sentence, one per row
    source_tokens: list[list[str]]  #: of each sentence, one per column

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        sizes = zip(self.target_tokens, self.source_tokens, strict=True)
        shapes = ", ".join(f"{len(rows)} x {len(columns)}" for rows, columns in sizes)
        return f"TranslationAttention({shapes or 'no weights'})"

    @overload
    def __getitem__(self, index: int) -> Weights: ...
    @overload
    def __getitem__(self, index: slice) -> list[Weights]: ...
    def __getitem__(self, index: int | slice) -> Weights | list[Weights]:
        return self.weights[index]

    def to_dict(self) -> dict[str, Any]:
        """Return weights and tokens as plain data."""
        return {"weights": self.weights, "target_tokens": self.target_tokens, "source_tokens": self.source_tokens}

    def _repr_html_(self) -> str:
        """Return one map per sentence for a notebook."""
        slices = []
        for i, (weights, rows, columns) in enumerate(
            zip(self.weights, self.target_tokens, self.source_tokens, strict=True)
        ):
            table = np.array(weights, np.float64).reshape(len(rows), len(columns))  # (T, S)
            title = f"Sentence {i + 1}" if len(self) > 1 else TITLES["cross"][0]
            slices.append(MapSlice(title, TITLES["cross"][1], rows, columns, table, float(entropies(table))))
        return heat_maps(slices, "")


def translation_attention(
    weights: list[Weights], tokens: Sequence[Sequence[str]], source_tokens: Sequence[Sequence[str]]
) -> TranslationAttention:
    """Return weights with the tokens that they belong to."""
    columns = [[*one, END][: len(table[0]) if table else 0] for table, one in zip(weights, source_tokens, strict=True)]
    return TranslationAttention(weights, [list(rows) for rows in tokens], columns)


@dataclass(frozen=True, repr=False)
class AttentionMaps:
    """All attention weights of a model for some lines; a notebook shows maps of them."""

    facts: Mapping[str, str]  #: description of the model and of the maps
    examples: Sequence[AttentionExample]  #: one per line, with weights (L, H, T, S)
    every: bool = False  #: whether all kinds of attention are drawn, or the first alone

    def __repr__(self) -> str:
        kinds = dict.fromkeys(one.kind for example in self.examples for one in example.maps)
        n = len(self.examples)
        return f"AttentionMaps({self.facts.get('run', '')}: {n:,} line{'s' * (n != 1)}; {', '.join(kinds)})"

    def to_dict(self) -> dict[str, Any]:
        """Return tokens, weights and entropies as plain data, as ``attend --json`` does."""
        return {"facts": dict(self.facts), "examples": [to_dict(one) for one in self.examples]}

    def page(self) -> str:
        """Return the page of ``attnkit attend --html``: every layer, head and search."""
        from attnkit.plotting.html.attention import build_page

        return build_page(self.examples, self.facts)

    def _repr_html_(self) -> str:
        """Return the mean over heads of the last layer of each line, for a notebook."""
        from attnkit.analysis.attention_request import MapSelection, pick

        shown = MapSelection(every=self.every)
        return "".join(heat_maps(pick(one, shown), _heading(one)) for one in self.examples)


def _heading(example: AttentionExample) -> str:
    """Return a line with what the model made of it, unless it is the same."""
    same = example.target.strip() in ("", example.source.strip())
    return example.source if same else f"{example.source} → {example.target}"


@checked
def attend(
    run: str | Path,
    lines: Sequence[str],
    *,
    targets: Sequence[str] = (),
    pairs: Sequence[str] = (),
    beam_size: Count | None = None,
    checkpoint: str | None = None,
    device: str = "auto",
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> AttentionMaps:
    """Return all attention weights of a translator, BERT, GPT or classifier.

    Args:
        run: run folder.
        lines: source lines.
        targets: their translations; empty: the model translates them.
        pairs: second texts of pairs, or contexts of questions.
        beam_size: of the translation; None: the run's.
        checkpoint: ``best``, ``last``, ``averaged`` or ``step-N``; None: the best.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        src_lang: source language of an imported translator with language codes.
        tgt_lang: target language of a translator with several.

    Raises:
        RunError: the run is missing or damaged, or its model has no attention.
        DataError: a line is blank or too long.
        UsageError: as many targets or pairs as lines are needed.
    """
    from attnkit.analysis.attention import extract_attention
    from attnkit.analysis.attention_request import AttentionQuery
    from attnkit.tasks.translation.directions import LanguagePair

    languages = LanguagePair(src_lang, tgt_lang)
    query = AttentionQuery(Path(run), list(lines), targets, pairs, beam_size, checkpoint, device, languages)
    return _gathered(extract_attention(query), every=False)


@checked
def compare_alignments(
    run: str | Path,
    lines: Sequence[str],
    *,
    alignments: Sequence[AlignmentName] = (),
    distribution: DistributionName | None = None,
    layer: int | None = None,
    seed: Annotated[int, 0] = 1,
    targets: Sequence[str] = (),
    checkpoint: str | None = None,
    device: str = "auto",
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> AttentionMaps:
    """Compare alignment functions on the queries and keys of one translator.

    The first map of a line has the run's own function. Functions with parameters get random ones, which are not trained
    for these states.

    Args:
        run: run folder.
        lines: source lines.
        alignments: functions to compare; empty: all that the distribution allows.
        distribution: distribution function; None: the run's, or softmax if its heads differ.
        layer: layer whose queries and keys are used; None: the last.
        seed: seed of the random parameters.
        targets: translations of the lines; empty: the model translates them.
        checkpoint: ``best``, ``last``, ``averaged`` or ``step-N``; None: the best.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        src_lang: source language of an imported translator with language codes.
        tgt_lang: target language of a translator with several.

    Raises:
        RunError: the run is missing or damaged, or its model has no attention.
        DataError: a line is blank or too long.
        UsageError: an unknown layer, or a function that the distribution does not allow.
    """
    from attnkit.analysis.attention_request import AttentionQuery, check_alignments
    from attnkit.analysis.compare_alignments import FunctionChoice, compare_functions
    from attnkit.tasks.translation.directions import LanguagePair

    check_alignments(alignments)
    languages = LanguagePair(src_lang, tgt_lang)
    query = AttentionQuery(Path(run), list(lines), targets, (), None, checkpoint, device, languages)
    return _gathered(compare_functions(query, FunctionChoice(alignments, distribution, seed), layer), every=True)


def _gathered(report: AttentionReport, every: bool) -> AttentionMaps:
    """Compute all lines of a report; issue its warnings."""
    from attnkit.analysis.attention_request import gather

    for text in report.warnings:
        warn(text)
    found = AttentionMaps(report.facts, gather(report.sentences), every)
    for text in report.afterwards():
        warn(text)
    return found
