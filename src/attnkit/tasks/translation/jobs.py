"""Jobs of ``attnkit translate``: input files, outputs, and how they resume."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.errors import UsageError
from attnkit.io.resumable import ResumableFiles, is_result
from attnkit.tasks.translation.stream import TranslateRequest
from attnkit.text.files import STDIN, is_pattern
from attnkit.text.lines import check_not_overwriting, check_not_streams, open_binary
from attnkit.text.sources import source_stats, split_field

PROGRESS = "translate.progress"  #: file of an unfinished job in the output folder


def find_inputs(source: Path) -> list[Path] | None:
    """Return the files of a folder or a pattern (``*?[``), sorted; else None.

    Hidden files and the files of subfolders are left out; ``**`` in a pattern takes subfolders.

    Raises ``UsageError`` if there are none.
    """
    if source == STDIN or source.is_file() or split_field(str(source))[1] is not None:
        return None
    if source.is_dir():
        found = [path for path in source.iterdir() if not path.name.startswith(".")]
        nothing = f"{source} has no files"
    elif is_pattern(str(source)):
        # Path.glob takes no absolute patterns.
        found = [Path(name) for name in glob.glob(str(source), recursive=True)]  # noqa: PTH207
        nothing = f"no file matches {source}"
    else:
        return None
    if not (files := sorted(path for path in found if path.is_file())):
        raise UsageError(nothing, where="-i", help="check the spelling of the path")
    return files


def pair_outputs(sources: Sequence[Path], folder: Path | None) -> list[Path]:
    """Return the output of each source: the same name in ``folder``.

    Raises ``UsageError`` if there is no folder, if two outputs have one name, or if an output is an input.
    """
    if folder is None or (folder.exists() and not folder.is_dir()):
        what = "several input files need an output folder" if folder is None else f"{folder} is not a folder"
        raise UsageError(what, where="-o", help="attnkit translate RUN -i 'FOLDER/*.en' -o NEW-FOLDER")
    taken: dict[str, Path] = {PROGRESS: folder / PROGRESS}
    for source in sources:
        # The names of unfinished parts and their records are taken too.
        for name in (source.name, f"{source.name}.part", f"{source.name}.progress"):
            if name in taken:
                what = f"the translations of {taken[name]} and {source} would have one name, {name}"
                raise UsageError(what, where="-i", help="rename one of them, or translate them into two folders")
            taken[name] = source
    outputs = [folder / source.name for source in sources]
    for output in outputs:
        check_not_overwriting(output, sources)
    return outputs


def check_inputs(sources: Sequence[Path]) -> None:
    """Raise ``AttnkitError`` if a file cannot be read, before the work starts."""
    check_not_streams(sources)
    for source in sources:
        open_binary(source).close()


def open_job(folder: Path, sources: Sequence[Path], request: TranslateRequest) -> ResumableFiles:
    """Start or resume the job of a folder; its state counts files and lines.

    Raises ``UsageError`` if an unfinished job has other files or settings.
    """
    check_inputs(named := option_files(request))
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in [*sources, *named]]
    inputs = hashlib.sha256(json.dumps(stats).encode()).hexdigest()
    return ResumableFiles(folder / PROGRESS, [], {**job_settings(request), "inputs": inputs}, [0, 0])


def option_files(request: TranslateRequest) -> list[Path]:
    """Return the files, besides the source, that translations depend on."""
    named = (request.prefixes, request.shortlist, request.dictionary, request.suppress, request.glossary)
    return [path for path in named if path is not None]


def resumable_record(output: Path) -> Path:
    """Return the record of an unfinished output."""
    return output.with_name(f"{output.name}.progress")


def resumable_output(request: TranslateRequest, output: Path | None) -> ResumableFiles:
    """Open the parts of an output, recorded with input, models and options."""
    if output is None or request.source == STDIN:
        raise UsageError("--resume requires -i and -o", help="attnkit translate RUN -i FILE -o FILE --resume")
    return ResumableFiles(resumable_record(output), [output], output_settings(request), 0)


def is_translated(request: TranslateRequest, output: Path | None) -> bool:
    """Return whether an output is known to be the finished one of a request."""
    if output is None or request.source == STDIN or resumable_record(output).exists():
        return False
    return output.is_file() and is_result(output, output_settings(request))


def output_settings(request: TranslateRequest) -> dict[str, object]:
    """Return what the output of one source depends on."""
    inputs = [request.source, *option_files(request)]
    check_inputs(inputs)
    stats = [source_stats(path)[1:] for path in inputs]
    return {**job_settings(request), "source": str(request.source), "inputs": stats}


def job_settings(request: TranslateRequest) -> dict[str, object]:
    """Return what a translation depends on, its input aside: models and options."""
    models = [fingerprint_of(RunFolder(run).checkpoint(request.checkpoint)[0]) for run in request.runs]
    if request.adapter is not None:
        models.append(fingerprint_of(RunFolder(request.adapter).checkpoint()[0]))
    if request.rerank_with is not None:
        models.append(fingerprint_of(RunFolder(request.rerank_with).checkpoint()[0]))
    left_out = ("skip", "threads", "runs", "source", "adapter", "rerank_with")
    settings = {name: str(value) for name, value in vars(request).items() if name not in left_out}
    if request.rerank_with is not None and request.rerank_weight is None:
        from attnkit.tasks.translation.reranking import DEFAULT_WEIGHT  # imported here: few jobs are reranked

        settings["rerank_weight"] = str(DEFAULT_WEIGHT)
    return {**settings, "models": models}
