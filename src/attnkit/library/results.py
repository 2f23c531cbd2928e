"""Curves, confusion matrices and maps of vectors that notebooks show. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attnkit.config.arguments import checked
from attnkit.errors import DataError
from attnkit.io.plain_data import plain
from attnkit.library.files import check_lengths
from attnkit.plotting.curves import Curve, GrowingCurve
from attnkit.plotting.html import escape
from attnkit.plotting.html.chart import line_chart
from attnkit.plotting.progress_text import score_name
from attnkit.tasks.word2vec.project import ProjectionMethod
from attnkit.tasks.word2vec.vectors import Vectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnkit.analysis.run_report import RunReport
    from attnkit.metrics.labels import ClassScores
    from attnkit.plotting.html.projection import Projection

_ON_LOSS = ("loss", "unigram_loss")  # scores with the unit of the training loss


@dataclass(frozen=True, repr=False)
class RunCurves:
    """Losses and scores of a run by step, as ``metrics.jsonl`` has them."""

    run: str
    steps: list[int]  #: steps whose training loss is recorded
    losses: list[float]  #: training loss at each of ``steps``; NaN where it was not finite
    learning_rates: list[float]  #: at each of ``steps``
    scores: Mapping[str, list[tuple[int, float]]]
    """Development score -> (step, value) of each evaluation; BLEU, chrF, accuracy and F1 in percent, losses in nats."""

    def __repr__(self) -> str:
        last = f", the last {self.losses[-1]:.3f}" if self.losses else ""
        scored = "; ".join(f"{name} {points[-1][1]:.4g}" for name, points in self.scores.items())
        return f"RunCurves({self.run}: {len(self.steps):,} losses{last}{'; ' * bool(scored)}{scored})"

    def to_dict(self) -> dict[str, Any]:
        """Return the curves as plain data."""
        scores = {name: [list(point) for point in points] for name, points in self.scores.items()}
        learned = {"steps": self.steps, "losses": self.losses, "learning_rates": self.learning_rates}
        return {"run": self.run, **learned, "scores": scores}

    def _repr_html_(self) -> str:
        """Return charts for a notebook: losses together, each other score alone."""
        training = GrowingCurve()
        for step, loss in zip(self.steps, self.losses, strict=True):
            training.add(step, loss)
        losses = [Curve("training loss", "", training.x, training.y)]
        charts = []
        for name, points in self.scores.items():
            curve = GrowingCurve()
            for step, value in points:
                curve.add(step, value)
            shown = Curve(f"development {score_name(name)}", "", curve.x, curve.y)
            if name in _ON_LOSS:
                losses.append(shown)
            else:
                charts.append([shown])
        title = f'<div style="font-size:13px">{escape(self.run)}</div>'
        drawn = [
            line_chart(curves, x_label="step", title="curves of the run", width=460) for curves in (losses, *charts)
        ]
        style = "display:flex;flex-wrap:wrap;gap:8px 20px"
        charts_html = "".join(f"<div>{chart}</div>" for chart in drawn if chart)
        return f'<div style="font-family:system-ui,sans-serif">{title}<div style="{style}">{charts_html}</div></div>'


@checked
def curves(run: str | Path) -> RunCurves:
    """Return the losses and development scores of a run, finished or not.

    Raises:
        RunError: the folder is not a run, or has no records.
    """
    from attnkit.analysis.run_history import read_history

    found = read_history(Path(run))
    return RunCurves(str(run), found.steps, found.losses, found.learning_rates, found.scores)


@dataclass(frozen=True, repr=False)
class Report:
    """A report on runs; a notebook shows its curves."""

    contents: RunReport  #: runs with their records, comparisons on test files, attention

    def __repr__(self) -> str:
        names = ", ".join(run.name for run in self.contents.runs)
        return f"Report({names}; {len(self.contents.tests)} comparisons, {len(self.contents.attention)} lines)"

    def page(self) -> str:
        """Return the page of ``attnkit report``, as HTML."""
        from attnkit.analysis.report_page import report_page

        return report_page(self.contents)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as ``attnkit report --json`` does."""
        tree: dict[str, Any] = plain(asdict(self.contents))
        return tree

    def _repr_html_(self) -> str:
        """Return the charts for a notebook."""
        from attnkit.analysis.report_page import curves_fragment

        return curves_fragment(self.contents)


@dataclass(frozen=True, repr=False)
class ConfusionMatrix:
    """Counts of predicted labels by gold label."""

    labels: tuple[str, ...]
    counts: list[list[int]]  #: (L, L): gold, predicted
    accuracy: float  #: percentage of correct predictions
    classes: Mapping[str, ClassScores]  #: label -> precision, recall and F1 in percent

    def __repr__(self) -> str:
        total = sum(map(sum, self.counts))
        return f"ConfusionMatrix({len(self.labels)} labels, {total:,} examples, accuracy {self.accuracy:.1f} %)"

    def to_dict(self) -> dict[str, Any]:
        """Return labels, counts and scores as plain data."""
        classes = {label: scores.to_dict() for label, scores in self.classes.items()}
        return {"labels": list(self.labels), "counts": self.counts, "accuracy": self.accuracy, "classes": classes}

    def page(self, title: str = "Confusion matrix") -> str:
        """Return the page of ``attnkit predict --confusion``, as HTML."""
        from attnkit.plotting.confusion import confusion_page

        return confusion_page(self.labels, self._array(), title)

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        from attnkit.plotting.confusion import confusion_fragment

        return confusion_fragment(self.labels, self._array())

    def _array(self) -> NDArray[np.int64]:
        import numpy as np

        size = len(self.labels)
        return np.array(self.counts, np.int64).reshape(size, size)


@checked
def confusion(predicted: Sequence[str], gold: Sequence[str], labels: Sequence[str] | None = None) -> ConfusionMatrix:
    """Return the confusion matrix of predicted labels.

    >>> found = confusion(["a", "b", "b"], ["a", "a", "b"])
    >>> found.counts, round(found.accuracy, 1)
    ([[1, 1], [0, 1]], 66.7)

    Args:
        predicted: labels of a model, e.g. ``[one.label for one in classifier.predict(texts)]``.
        gold: the right labels.
        labels: order of rows and columns; None: alphabetical.

    Raises:
        DataError: the lengths differ, or a label is not one of ``labels``.
    """
    from attnkit.metrics.labels import confusion as count

    check_lengths("predicted labels", "gold labels", predicted, gold)
    if labels is not None and (unknown := {*predicted, *gold} - {*labels}):
        what = f"unknown label '{min(unknown)}'"
        raise DataError(what, where="labels", help="add it, or leave out labels")
    found = count(list(predicted), list(gold), labels)
    return ConfusionMatrix(found.labels, found.counts.tolist(), found.accuracy, found.classes())


@checked
def project(
    vectors: Vectors | str | Path,
    *,
    method: ProjectionMethod = "pca",
    n_words: Annotated[int, 3] | None = None,
    perplexity: Annotated[float, 1] = 30.0,
    steps: Annotated[int, 250] = 750,
    quiet: bool = False,
) -> Projection:
    """Project words to two dimensions, as ``attnkit word2vec project`` does.

    Args:
        vectors: word vectors, a run or a file of them.
        method: ``pca``, or ``tsne`` (van der Maaten 2014); both need ``attnkit[plot]``.
        n_words: number of most frequent words; None: 10,000, with t-SNE 2,000.
        perplexity: effective number of neighbours per word in t-SNE.
        steps: optimization steps of t-SNE.
        quiet: whether to show no progress.

    Raises:
        UsageError: too many words, a perplexity too large for them, or scikit-learn is not installed.
        DataError: too few words, or vectors that are not finite.
    """
    from attnkit.progress.calls import call_progress
    from attnkit.tasks.word2vec.project import ProjectionRequest, project_words

    opened = Vectors.load(vectors) if isinstance(vectors, str | Path) else vectors
    with call_progress(quiet) as status:
        return project_words(opened, ProjectionRequest(method, n_words, perplexity, steps), status.update)
