"""Calls on whole runs: average, verify, export, import, compare. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from attnkit.analysis.verify import VerificationReport
    from attnkit.conversion.export_ctranslate2 import ExportResult, Quantization
    from attnkit.conversion.imported_run import ImportResult
    from attnkit.engine.averaging import AverageResult
    from attnkit.tasks.language_modeling.compare import PositionPrediction


def average(run: str | Path, n: int | None = None, *, checkpoints: Sequence[str] = ()) -> AverageResult:
    """Write the mean of the last ``n`` or the named checkpoints to a run.

    Raises:
        RunError: there are too few checkpoints, or their models differ.
        UsageError: both ``n`` and ``checkpoints`` are given.
    """
    from attnkit.engine.averaging import average_run

    return average_run(Path(run), n, list(checkpoints))


def verify(run: str | Path) -> VerificationReport:
    """Check every file of a run against its checksum.

    Raises:
        RunError: the folder is not a run.
    """
    from attnkit.analysis.verify import verify_run

    return verify_run(Path(run))


def export(
    run: str | Path,
    folder: str | Path,
    *,
    to: Literal["huggingface", "ctranslate2"],
    checkpoint: str | None = None,
    quantization: Quantization = "float32",
) -> ExportResult:
    """Export a run to transformers or CTranslate2; ``quantization`` is CTranslate2's.

    Raises:
        RunError: the run is damaged, or the other system has no such model.
        UsageError: the folder is not empty, or ctranslate2 is not installed.
    """
    if to == "huggingface":
        from attnkit.conversion.export_huggingface import export_huggingface

        return export_huggingface(Path(run), Path(folder), checkpoint=checkpoint)
    from attnkit.conversion.export_ctranslate2 import export_ctranslate2

    return export_ctranslate2(Path(run), Path(folder), checkpoint=checkpoint, quantization=quantization)


def import_run(folder: str | Path, run: str | Path) -> ImportResult:
    """Import a Hugging Face folder as a run.

    Raises:
        RunError: the model is unsupported or damaged.
        UsageError: the run exists.
    """
    from attnkit.conversion.import_huggingface import import_huggingface

    return import_huggingface(Path(folder), Path(run))


def compare_lm(
    bert: str | Path, gpt: str | Path, text: str, *, top: int = 3, device: str = "auto"
) -> tuple[PositionPrediction, PositionPrediction]:
    """Return the predictions of BERT and GPT at each position of a text.

    Raises:
        DataError: the text is blank, contains a mask, or is too long for a model.
        RunError: the runs are not one BERT and one GPT.
    """
    from attnkit.tasks.language_modeling.compare import compare

    return compare((Path(bert), Path(gpt)), text, top, device=device)
