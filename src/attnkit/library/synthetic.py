"""Calls that write training pairs: back_translate, augment, distill. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.config import validate
from attnkit.config.arguments import Count, checked
from attnkit.decoding.config import SearchArguments, check_search_options
from attnkit.engine.engine_choice import Engine
from attnkit.kernels.simd.targets import Precision
from attnkit.library.files import Files, as_path, paths_of, warn
from attnkit.progress.calls import call_progress
from attnkit.progress.console import follow_lines
from attnkit.tasks.translation.directions import BACK_OPTIONS
from attnkit.tasks.translation.segmenting import SplitPolicy
from attnkit.text.tags import BACK_TRANSLATED

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from attnkit.tasks.translation.synthetic_output import SyntheticReport


@checked
def back_translate(
    run: str | Path,
    mono: str | Path,
    output: str | Path,
    *,
    forward: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    engine: Engine = "auto",
    threads: Count | None = None,
    checkpoint: str | None = None,
    adapter: str | Path | None = None,
    tgt_lang: str | None = None,
    mono_lang: str | None = None,
    split: SplitPolicy = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **search: Unpack[SearchArguments],
) -> SyntheticReport:
    """Make training pairs from target text alone, as ``attnkit back-translate`` does.

    Calling it again resumes an interrupted job, and returns the report of a finished one.

    Args:
        run: run from the target to the source language.
        mono: text in the target language.
        output: folder that gets ``pairs.src`` and ``pairs.tgt``.
        forward: run from the source to the target language, for filters.
        settings: the tag and filters, e.g. ``{"tag": "", "min_round_trip": 40.0}``; see ``SyntheticConfig``.
        device: device of the models.
        precision: ``float32``, ``bfloat16`` or ``int8``.
        engine: ``compiled``, ``torch`` or ``auto``.
        threads: CPU threads; None: all.
        checkpoint: checkpoint of ``run``; None: the best.
        adapter: run of an adapter of ``run``.
        tgt_lang: language of the translations, if ``run`` has several, e.g. ``en``.
        mono_lang: language of ``mono``, if ``forward`` has several, or ``run`` is imported with language codes.
        split: ``sentences``, ``lines``, or ``auto``: lines of more sentences than the training text's are split.
        overwrite: whether to replace an earlier result.
        quiet: whether to show no progress.
        search: options of the search, e.g. ``sampling=True``.

    Raises:
        DataError: a line is not UTF-8, or no pair is left.
        RunError: a run is missing or damaged.
        UsageError: the folder holds something else, or the settings changed.
    """
    options = {"device": device, "precision": precision, "engine": engine, "threads": threads, "split": split}
    options |= {"checkpoint": checkpoint, "tgt_lang": tgt_lang, "text_lang": mono_lang, "overwrite": overwrite}
    files = {"text": Path(mono), "forward": as_path(forward), "adapter": as_path(adapter)}
    given = {"tag": BACK_TRANSLATED, **(settings or {})}
    back = {**files, **options, "is_back": True, "lang_options": BACK_OPTIONS}
    return _make_pairs(Path(run), Path(output), back, given, {**search}, quiet)


@checked
def augment(
    src: str | Path,
    tgt: str | Path,
    output: str | Path,
    *,
    forward: Files = (),
    backward: Files = (),
    forward_tag: str = "",
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    engine: Engine = "auto",
    threads: Count | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    split: SplitPolicy = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **search: Unpack[SearchArguments],
) -> SyntheticReport:
    """Make more training pairs of a corpus by translating both sides.

    As ``attnkit augment`` does (Nguyen et al. 2020). Calling it again resumes an interrupted job. The other arguments,
    and the errors, are those of ``back_translate``.

    Args:
        src: source text.
        tgt: target text, aligned line by line.
        output: folder that gets ``pairs.src`` and ``pairs.tgt``, without the pairs of the corpus.
        forward: run or runs from the source to the target language.
        backward: run or runs from the target to the source language.
        forward_tag: symbol before each source whose target a model wrote; empty: none.
        settings: the tag of sources that a model wrote, and filters, e.g. ``{"tag": ""}``; see ``SyntheticConfig``.
        device: device of the models.
        precision: ``float32``, ``bfloat16`` or ``int8``.
        engine: ``compiled``, ``torch`` or ``auto``.
        threads: CPU threads; None: all.
        src_lang: language of ``src``, if a run of ``backward`` has several; imported runs with codes need both.
        tgt_lang: language of ``tgt``, if a run of ``forward`` has several.
        split: as of ``back_translate``.
        overwrite: whether to replace an earlier result.
        quiet: whether to show no progress.
        search: options of the search, e.g. ``sampling=True, num_hypotheses=3``.
    """
    from attnkit.tasks.translation import augment as job
    from attnkit.tasks.translation.synthetic_config import SyntheticConfig

    config = validate(SyntheticConfig, {"tag": BACK_TRANSLATED, **(settings or {})})
    check_search_options({**search})
    request = job.AugmentRequest(
        src=Path(src),
        tgt=Path(tgt),
        output=Path(output),
        forward=paths_of(forward),
        backward=paths_of(backward),
        config=config,
        forward_tag=forward_tag,
        search={**search},
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        device=device,
        precision=precision,
        engine=engine,
        threads=threads,
        split=split,
        overwrite=overwrite,
    )
    with call_progress(quiet) as status:
        return job.augment(request, warn, follow_lines(status, [request.src]))


@checked
def distill(
    run: str | Path,
    src: str | Path,
    output: str | Path,
    *,
    tgt: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    engine: Engine = "auto",
    threads: Count | None = None,
    checkpoint: str | None = None,
    adapter: str | Path | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    split: SplitPolicy = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **search: Unpack[SearchArguments],
) -> SyntheticReport:
    """Translate training text by a teacher, as ``attnkit distill`` does.

    Calling it again resumes an interrupted job. With ``tgt``, the hypothesis of each line that is nearest to its target
    is kept (Kim and Rush 2016). The other arguments, and the errors, are those of ``back_translate``.
    """
    options = {"device": device, "precision": precision, "engine": engine, "threads": threads, "split": split}
    options |= {"checkpoint": checkpoint, "tgt_lang": tgt_lang, "text_lang": src_lang, "overwrite": overwrite}
    files = {"text": Path(src), "references": as_path(tgt), "adapter": as_path(adapter)}
    return _make_pairs(Path(run), Path(output), {**files, **options}, settings or {}, {**search}, quiet)


def _make_pairs(
    run: Path,
    output: Path,
    request: Mapping[str, Any],
    settings: Mapping[str, Any],
    search: dict[str, Any],
    quiet: bool,
) -> SyntheticReport:
    from attnkit.tasks.translation.synthetic_config import SyntheticConfig
    from attnkit.tasks.translation.synthetic_pairs import SyntheticRequest, make_pairs

    config = validate(SyntheticConfig, dict(settings))
    check_search_options(search)
    with call_progress(quiet) as status:
        show = follow_lines(status, [request["text"]])
        return make_pairs(SyntheticRequest(run, output=output, config=config, search=search, **request), warn, show)
