"""BLEU, chrF and TER as computed by sacreBLEU, and significance tests.

``notes_bleu`` is BLEU as defined in the lecture notes. Significance is tested by paired bootstrap (Koehn 2004) or
paired approximate randomization (Riezler and Maxwell 2005).
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnkit.errors import SystemFailure, UsageError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


def clipped_matches(pred: Sequence[str], label: Sequence[str], order: int) -> tuple[int, int]:
    """Return the number of clipped n-gram matches and of n-grams in ``pred``.

    >>> clipped_matches(list("ABBCD"), list("ABCDEF"), 1)
    (4, 5)
    """
    found, allowed = _ngrams(pred, order), _ngrams(label, order)
    return sum((found & allowed).values()), sum(found.values())


def notes_bleu(pred: Sequence[str], label: Sequence[str], max_order: int = 4) -> float:
    """Return sentence BLEU (0 to 1) as defined in the lecture notes and in d2l.

    The score is exp(min(0, 1 - len(label) / len(pred))) · Π p_n^(1/2^n) for n = 1 to ``max_order``. Orders longer than
    the prediction are skipped. An empty prediction scores 0, or 1 if the label is empty too.

    Raises:
        ValueError: ``max_order`` is not positive.
    """
    if max_order < 1:
        raise ValueError(f"max_order must be at least 1, not {max_order}")
    if not pred:
        return 0.0 if label else 1.0
    score = math.exp(min(0.0, 1 - len(label) / len(pred)))
    for order in range(1, min(max_order, len(pred)) + 1):
        n_matches, n_ngrams = clipped_matches(pred, label, order)
        score *= (n_matches / n_ngrams) ** (0.5**order)
    return score


def _ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


MetricName = Literal["bleu", "chrf", "ter"]
BleuTokenizer = Literal[
    "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200", "spBLEU-1K"
]
"""sacreBLEU's tokenizers. The last five need other packages; the last three download a model on first use."""
_TOKENIZER_PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
MAX_WORD_ORDER = 10


@dataclass(frozen=True)
class MetricScore:
    """A corpus score with its sacreBLEU signature.

    ``text`` is the line printed by ``sacrebleu -f text -w 2``: signature, score and details such as n-gram precisions.
    """

    name: str
    score: float
    signature: str
    text: str
    sentences: list[float] | None = None  #: score of each sentence; None unless asked for

    def to_dict(self) -> dict[str, Any]:
        """Return the score as plain data."""
        return asdict(self)


def build_metric(
    metric: MetricName,
    *,
    tokenize: BleuTokenizer = "13a",
    lowercase: bool = False,
    by_sentence: bool = False,
    chrf_word_order: int = 0,
) -> Metric:
    """Build a sacreBLEU metric.

    ``tokenize`` applies to BLEU only, ``lowercase`` to BLEU and chrF; TER always ignores case. With ``by_sentence``,
    BLEU skips the n-gram orders that are longer than a sentence (sacreBLEU's effective order). ``chrf_word_order`` is
    the longest n-gram of words that chrF counts besides those of characters; 2 is chrF++ (Popović 2017).

    Raises:
        UsageError: The package of the tokenizer is not installed.
        SystemFailure: The model of the tokenizer cannot be downloaded.
    """
    # Importing sacreBLEU takes half a second, too long for help pages.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if metric == "bleu":
        try:
            return BLEU(lowercase=lowercase, tokenize=tokenize, effective_order=by_sentence)
        except OSError as error:
            what = f"cannot load the model of the tokenizer {tokenize}: {error}"
            raise SystemFailure(what, help="sacreBLEU downloads it on first use: check the network") from error
        except (ImportError, RuntimeError) as error:  # without MeCab, sacreBLEU raises a RuntimeError
            package = _TOKENIZER_PACKAGES.get(tokenize, "sentencepiece")
            what = f"the tokenizer {tokenize} needs the package {package}"
            raise UsageError(what, where="--tokenize", help=f"pip install '{package}'") from error
    if metric == "chrf":
        return CHRF(lowercase=lowercase, word_order=chrf_word_order)
    return TER()


def score_corpus(metric: Metric, hyps: Sequence[str], refs: Sequence[Sequence[str]]) -> MetricScore:
    """Score a corpus; ``refs`` holds one list of lines per reference translation.

    Raises:
        ValueError: There are no hypotheses or references, or their numbers of lines differ.
    """
    _check_lengths(hyps, refs)
    found = metric.corpus_score(hyps, refs)
    signature = f"{found.name}|{metric.get_signature()}"
    return MetricScore(found.name, found.score, signature, found.format(width=2, signature=str(metric.get_signature())))


def score_sentences(metric: Metric, hyps: Sequence[str], refs: Sequence[Sequence[str]]) -> list[float]:
    """Return one score per sentence; build the metric with ``by_sentence=True``."""
    _check_lengths(hyps, refs)
    return [float(metric.sentence_score(hyp, list(versions)).score) for hyp, *versions in zip(hyps, *refs, strict=True)]


def corpus_bleu(hyps: Sequence[str], refs: Sequence[Sequence[str]]) -> MetricScore:
    """Return corpus BLEU from 0 to 100 (Papineni et al. 2002; Post 2018).

    >>> corpus_bleu(["The cat sat on the mat."], [["The cat sat on the mat."]]).score
    100.00000000000004
    """
    return score_corpus(build_metric("bleu"), hyps, refs)


def corpus_chrf(hyps: Sequence[str], refs: Sequence[Sequence[str]]) -> MetricScore:
    """Return corpus chrF2 from 0 to 100 (Popović 2015)."""
    return score_corpus(build_metric("chrf"), hyps, refs)


def _check_lengths(hyps: Sequence[str], refs: Sequence[Sequence[str]]) -> None:
    if not hyps or not refs:
        raise ValueError("nothing to score: expected at least one hypothesis and one reference")
    for number, lines in enumerate(refs, 1):
        if len(lines) != len(hyps):
            raise ValueError(f"{len(hyps)} hypotheses but {len(lines)} lines in reference {number}")


@dataclass(frozen=True)
class Comparison:
    """Scores of a baseline and a system with 95 % intervals, and the p-value."""

    name: str
    signature: str
    baseline: float
    baseline_interval: float  #: half-width of the 95 % confidence interval
    system: float
    system_interval: float
    p_value: float  #: of the null hypothesis that both systems are equally good; 1 for equal scores


def paired_bootstrap(
    metric: Metric,
    baseline: Sequence[str],
    system: Sequence[str],
    refs: Sequence[Sequence[str]],
    *,
    n_samples: int = 1000,
    seed: int = 12345,
) -> Comparison:
    """Compare a system with a baseline by paired bootstrap resampling (Koehn 2004).

    The defaults are those of ``sacrebleu --paired-bs``. A p-value below 0.05 is conventionally called significant. It
    is the share of samples in which the absolute difference exceeds its mean by more than the observed difference: a
    one-sided test where one system is ahead in nearly all samples.

    Raises:
        ValueError: The systems and references differ in their number of lines, or are empty; ``seed`` is 0.
    """
    return _paired_test("bs", metric, (baseline, system), refs, n_samples, seed)


def paired_randomization(
    metric: Metric,
    baseline: Sequence[str],
    system: Sequence[str],
    refs: Sequence[Sequence[str]],
    *,
    n_samples: int = 10_000,
    seed: int = 12345,
) -> Comparison:
    """Compare a system with a baseline by paired approximate randomization.

    Each sample exchanges the two translations of a line with probability 1/2 (Riezler and Maxwell 2005). The p-value
    is the share of samples with a larger absolute difference than the observed one: a two-sided test. The defaults are
    those of ``sacrebleu --paired-ar``; the intervals are of 1,000 bootstrap samples.

    Raises:
        ValueError: The systems and references differ in their number of lines, or are empty; ``seed`` is 0.
    """
    return _paired_test("ar", metric, (baseline, system), refs, n_samples, seed)


PairedTestName = Literal["bootstrap", "randomization"]
PAIRED_TESTS = {"bootstrap": paired_bootstrap, "randomization": paired_randomization}


def _paired_test(
    test: Literal["bs", "ar"],
    metric: Metric,
    systems: tuple[Sequence[str], Sequence[str]],
    refs: Sequence[Sequence[str]],
    n_samples: int,
    seed: int,
) -> Comparison:
    """Run a paired test of sacreBLEU on a baseline and a system."""
    from sacrebleu.significance import PairedTest, Result

    if not systems[0] or any(len(lines) != len(systems[0]) for lines in (systems[1], *refs)):
        raise ValueError("both systems and every reference need the same number of lines, at least one")
    if not seed:
        raise ValueError("the seed must be at least 1: for 0, sacreBLEU draws another seed in each call")
    named = list(zip(("baseline", "system"), systems, strict=True))
    # sacreBLEU reads its seed from the environment only; the variable is restored afterwards.
    old = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    # Randomization has no samples of a single system: its intervals need bootstrap samples of their own.
    n_confidence = 1000 if test == "ar" else -1
    try:
        metrics = {type(metric).__name__: metric}
        signatures, scores = PairedTest(named, metrics, refs, test, n_samples, n_confidence)()
    finally:
        if old is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = old
    (name,) = signatures
    first, second = (result for result in scores[name] if isinstance(result, Result))
    intervals = [float(result.ci or 0.0) for result in (first, second)]
    # For equal scores, sacreBLEU reports its lowest p-value, as if the difference were significant.
    p = 1.0 if second.p_value is None or first.score == second.score else float(second.p_value)
    return Comparison(name, f"{name}|{signatures[name]}", first.score, intervals[0], second.score, intervals[1], p)
