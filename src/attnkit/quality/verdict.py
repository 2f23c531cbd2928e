"""The verdict of a check: one sentence, how serious it is, and what mends it."""

from __future__ import annotations

from attnkit.quality.findings import FEW, MIN_OCCURRENCES, CheckReport, Severity, Stretch

STOP_SHARE = 0.1  #: share of pairs that do not belong together from which training is not worth its time
COPIED_SHARE = 0.5  #: share of copies from which the target seems to be the wrong file
WRONG_FILE_SHARE = 0.9  #: share of copies from which cleaning would leave nothing
OVERLAP_SHARE = 0.1  #: share of lines known from other files from which scores on them say little
WARN_SHARE = 0.02  #: share of copies that is mentioned first


def give_verdict(report: CheckReport, is_corpus: bool = True, n_held_out: int | None = None) -> None:
    """Set the verdict, severity and remedy of a report.

    ``is_corpus`` is False for a test set, which is compared with a corpus and may be small. ``n_held_out`` is the
    number of lines of the files that a corpus is compared with; None: these files are for scores themselves.
    """
    report.severity, report.verdict, report.remedy = _verdict(report, n_held_out)
    names = {finding.name for finding in report.findings}
    if not report.remedy and report.severity != "stop" and names - _NOT_MENDED:
        report.remedy = _clean(report)
    if report.remedy[:1] == ("clean",):  # one run of clean mends all
        report.remedy += tuple(flag for flag, mends in _FLAGS.items() if names & set(mends))
    if report.severity == "good" and is_corpus and report.n_usable < FEW:
        few = "1 pair is" if report.n_usable == 1 else f"{report.n_usable:,} pairs are"
        report.verdict += f" {few} few to learn from."


_FLAGS = {
    "--repair": (
        "mojibake",
        "reference",
        "mixed_script",
        "decomposed",
        "separator",
        "inner_return",
        "inner_mark",
        "control",
    ),
    "--strip-tags": ("markup",),
    "--duplicates=near": ("near_duplicate",),
    f"--max-uses={MIN_OCCURRENCES - 1}": ("boilerplate",),
    "--drop-repeated": ("repeated",),
}
"""Options of `clean`, and the findings that each mends; others are mended without any."""
_NOT_MENDED = {"few", "source_overlap", "pair_overlap", "near_overlap"}  # here: see ``doctor``


def _clean(report: CheckReport) -> tuple[str, ...]:
    return "clean", report.src, report.tgt, "-o", "cleaned"


def _verdict(report: CheckReport, n_held_out: int | None) -> tuple[Severity, str, tuple[str, ...]]:
    n = max(1, report.n_src)
    clean = _clean(report)
    by_name = {finding.name: finding for finding in report.findings}
    shifted = [stretch for stretch in report.stretches if stretch.kind == "shifted"]
    n_shifted = sum(stretch.n_lines for stretch in shifted)
    n_wrong = sum(stretch.n_lines for stretch in report.stretches)
    severity: Severity = "stop" if n_wrong >= STOP_SHARE * n or not report.trainable else "warning"
    if shifted and 2 * n_shifted >= n_wrong:
        return severity, _misaligned(shifted, n_shifted, report), (*clean, "--realign")
    if not report.trainable:
        fatal = next(finding for finding in report.findings if finding.fatal)
        path = {"source": report.src, "target": report.tgt, "pair": ""}[fatal.side]
        if fatal.name == "empty":
            return "stop", f"{path} is empty.", ()
        remedy = () if fatal.name == "nothing_left" else clean
        return "stop", f"{path}{path and ': '}{fatal.count:,} {fatal.described}.", remedy
    if "swapped_sides" in by_name:
        _, _, what = by_name["swapped_sides"].text.partition(": ")
        what = what if what.startswith("source and") else f"source and target are swapped: {what}"
        return "stop", f"{what[0].upper()}{what[1:]}.", ("check", report.tgt, report.src)
    for found in report.findings:
        if found.name == "wrong_language":
            _, _, what = found.text.partition("seem to be ")
            return "stop", f"The {found.side} seems to be {what}. Is it the right file?", ()
    copied = by_name["copied"].count if "copied" in by_name else 0
    if copied >= COPIED_SHARE * n:
        text = f"The target is a copy of the source in {_of(copied, n)} pairs."
        if copied >= WRONG_FILE_SHARE * n:  # nothing would be left of these files
            return "stop", f"{text} Is {report.tgt} the right file?", ()
        return "stop", text, clean
    if report.stretches:
        return severity, _unrelated(report, n), (*clean, *(["--realign"] if shifted else []))
    if copied >= WARN_SHARE * n:
        return "warning", f"The target is a copy of the source in {_of(copied, n)} pairs.", clean
    for name in ("swapped_pairs", "mojibake", "other_language", "other_side", "other_script"):
        if name in by_name and by_name[name].count >= WARN_SHARE * n:
            found = by_name[name]
            side = "" if found.side == "pair" else f"{found.side} "
            wrong: Severity = "stop" if name == "other_side" and found.count >= COPIED_SHARE * n else "warning"
            return wrong, f"{found.count:,} {side}{found.described} ({_percent(found.count, n)}).", clean
    if "unequal_shards" in by_name:
        found = by_name["unequal_shards"]
        text = f"{found.count:,} {found.described}: from line {found.first_line:,} on, pairs may be misaligned."
        return "warning", text, (*clean, "--realign")
    overlaps = [finding for name, finding in by_name.items() if name.endswith("_overlap")]
    shared = max(overlaps, key=lambda finding: finding.count, default=None)
    if shared is not None and shared.count >= OVERLAP_SHARE * (n_held_out or n):
        what = shared.described.replace(" that ", " ", 1)
        if n_held_out is None:
            return "warning", f"{shared.count:,} of {n:,} {what}: scores on them are too good.", ()
        return "warning", f"{shared.count:,} {what}, which has {n_held_out:,} lines: scores will be too good.", ()
    if "few" in by_name:
        return "warning", f"{by_name['few'].count:,} {by_name['few'].described}: expect a weak model.", ()
    if report.separation is None:
        return "good", "The files are usable for training. Their lines do not show whether they are aligned.", ()
    return "good", "The files are usable for training, and their lines seem to be aligned.", ()


def _misaligned(stretches: list[Stretch], n_shifted: int, report: CheckReport) -> str:
    share = f"{_percent(n_shifted, report.n_src)} of the corpus is misaligned"
    first = stretches[0]
    shift = first.shift or 0
    lines = f"{abs(shift):,} lines" if abs(shift) > 1 else "one line"
    where = f"the target is {lines} {'behind' if shift > 0 else 'ahead'}"
    if len(stretches) == 1 and first.last >= min(report.n_src, report.n_tgt - shift) - 1:
        place = "In all lines" if first.first == 1 else f"From line {first.first:,} on"
    else:
        place = f"In lines {first.first:,} to {first.last:,}"
    n_more = len(stretches) - 1
    more = f" there, and in {'one more place' if n_more == 1 else f'{n_more:,} more places'}" if n_more else ""
    return f"{place}, {where}{more}: {share}."


_SAID = {
    "no_target": "source lines have no target",
    "unrelated": "source and target do not belong together",
    "swapped": "source and target are swapped",
    "target_in_source_language": "the target is in the language of the source",
    "source_in_target_language": "the source is in the language of the target",
    "target_in_other_language": "the target is in another language",
    "source_in_other_language": "the source is in another language",
}


def _unrelated(report: CheckReport, n: int) -> str:
    longest = max(report.stretches, key=lambda stretch: stretch.n_lines)
    total = sum(stretch.n_lines for stretch in report.stretches)
    more = f" Such stretches are {_percent(total, n)} of the corpus."
    return f"In lines {longest.first:,} to {longest.last:,}, {_SAID[longest.kind]}.{more}"


def _of(count: int, n: int) -> str:
    return f"all {n:,}" if count == n else f"{count:,} of {n:,}"


def _percent(count: int, n: int) -> str:
    share = 100 * count / max(1, n)
    if 99.5 <= share < 100:
        return "over 99 %"
    return f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"
