"""Calls on word vectors beside those of ``Vectors``. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from attnkit.config import validate
from attnkit.config.arguments import Count, checked
from attnkit.errors import RunError, UsageError
from attnkit.io import atomic
from attnkit.io.plain_data import PlainResult
from attnkit.library.files import Files, paths_of, warn
from attnkit.progress.calls import call_progress
from attnkit.tasks.word2vec.vectors import Vectors

if TYPE_CHECKING:
    from attnkit.analysis.contextual import WordComparison
    from attnkit.data.words import JoinedText
    from attnkit.tasks.word2vec.evaluate import AnalogyScores, PairScores
    from attnkit.tasks.word2vec.one_hot import OneHot


@checked
def evaluate_vectors(
    vectors: Vectors | str | Path,
    questions: str | Path,
    *,
    method: Literal["add", "mul"] = "add",
    top: Annotated[int, 0] = 30_000,
    case: bool = False,
    subwords: bool = True,
) -> PairScores | AnalogyScores:
    """Score word vectors on a file of word similarities or of analogies.

    Args:
        vectors: word vectors, a run or a file of them.
        questions: pairs of words with judgements, or analogies as questions-words.
        method: of analogies: 3CosAdd or 3CosMul.
        top: number of most frequent words that answer; 0: all.
        case: whether to distinguish upper and lower case.
        subwords: whether to compose vectors of unseen words from n-grams, if the run has them.

    Raises:
        DataError: the file has no questions, or vectors are not finite.
    """
    from attnkit.tasks.word2vec.evaluate import Known, kind_of, read_analogies, read_pairs, score_analogies, score_pairs

    file, opened, known = Path(questions), _opened(vectors), Known(top, not case, subwords)
    if kind_of(file) == "pairs":
        return score_pairs(opened, read_pairs(file), known)
    return score_analogies(opened, read_analogies(file), known, method)


@dataclass(frozen=True)
class WordClusters(PlainResult):
    """Clusters of words."""

    classes: dict[str, int]  #: word -> cluster, numbered from 0 in order of first occurrence
    cosines: list[float]  #: of each word with the centre of its cluster
    iterations: int
    converged: bool


@checked
def cluster(
    vectors: Vectors | str | Path,
    n_classes: Count = 100,
    *,
    n_words: Count | None = None,
    iterations: Count = 50,
    seed: Annotated[int, 0] = 1,
) -> WordClusters:
    """Cluster words by cosine (k-means on unit vectors); needs ``attnkit[plot]``.

    ``n_words`` is the number of most frequent words; None: all.

    Raises:
        UsageError: more clusters than words, or scikit-learn is not installed.
    """
    from attnkit.tasks.word2vec.project import cluster_words

    opened = _opened(vectors)
    n_words = min(n_words or len(opened), len(opened))
    if n_classes > n_words:
        what = f"cannot form {n_classes:,} clusters from {n_words:,} words"
        raise UsageError(what, where="n_classes", help="choose fewer")
    found = cluster_words(opened, n_words, n_classes, iterations=iterations, seed=seed)
    classes = dict(zip(opened.index_to_key[:n_words], found.labels.tolist(), strict=True))
    return WordClusters(classes, found.nearness.tolist(), found.iterations, found.converged)


@checked
def compare_context(
    run: str | Path,
    sentences: Sequence[str],
    word: str,
    *,
    encoder: str | Path | None = None,
    layer: Annotated[int, 0] | None = None,
) -> WordComparison:
    """Compare the vectors of a word in several sentences, static and contextual.

    Args:
        run: run of word2vec or BERT, or a file of vectors.
        sentences: two or more, each with the word.
        word: word to compare.
        encoder: run of BERT for contextual vectors; None: ``run``, if it is one.
        layer: layer of that run; 0: embeddings, None: the last.

    Raises:
        DataError: a sentence or the vocabulary lacks the word.
        RunError: ``encoder`` is not a run of BERT or GPT.
        UsageError: fewer than two sentences, or a layer of word vectors.
    """
    from attnkit.analysis.contextual import compare_contexts, encoder_of

    reads = encoder_of(Path(encoder or run), layer)
    if reads is None and encoder is not None:
        raise RunError(f"{encoder} is not a run of BERT or GPT", where="encoder", help="attnkit.pretrain_mlm makes one")
    if reads is None and layer is not None:
        raise UsageError("word vectors have no layers", where="layer", help="name a run of BERT as encoder")
    return compare_contexts(Path(run), sentences, word, reads)


@checked
def compare_one_hot(vectors: Vectors | str | Path, words: Sequence[str]) -> OneHot:
    """Compare words as one-hot vectors (cosine always 0) and as trained vectors.

    Args:
        vectors: word vectors, a run or a file of them.
        words: two or more.

    Raises:
        UsageError: fewer than two different words.
        DataError: the vocabulary lacks a word.
    """
    from attnkit.tasks.word2vec.one_hot import compare_one_hot as compare

    return compare(_opened(vectors), words)


@checked
def phrases(
    files: Files,
    output: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    lower: bool = False,
    save: str | Path | None = None,
    given: str | Path | None = None,
    quiet: bool = False,
) -> JoinedText:
    """Find phrases in text and write it with them joined, e.g. ``new_york``.

    Args:
        files: text, plain or compressed.
        output: file to write.
        settings: options of ``attnkit word2vec phrases``, e.g. ``{"passes": 2, "connectors": ["of"]}``.
        lower: whether to lower-case the text.
        save: file that gets the phrases with their scores.
        given: file of phrases to join, instead of finding some.
        quiet: whether to show no progress.

    Raises:
        DataError: there is no text, or it is not UTF-8.
        UsageError: phrases are given beside settings, or an invalid setting.
    """
    from attnkit.data.words import join_words
    from attnkit.text.config import PhrasesConfig
    from attnkit.text.lines import check_not_overwriting
    from attnkit.text.phrases import load

    if given is not None and (settings or save):
        raise UsageError("given phrases exclude settings and save", where="given", help="leave them out")
    asked = load(Path(given)) if given else validate(PhrasesConfig, {"passes": 1, **(settings or {})})
    for path in (output, save):
        check_not_overwriting(None if path is None else Path(path), paths_of(files))
    with call_progress(quiet) as status, atomic.open_output(Path(output)) as out:
        report = join_words(paths_of(files), asked, lower, out, status.update)
    if save is not None:
        atomic.write_text(Path(save), report.phrases.to_text())
    for text in report.warnings:
        warn(text)
    return report


def _opened(vectors: Vectors | str | Path) -> Vectors:
    return vectors if isinstance(vectors, Vectors) else Vectors.load(vectors)
