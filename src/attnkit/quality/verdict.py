"""The verdict of a check: one sentence, how serious it is, and what mends it."""

from __future__ import annotations

from attnkit.quality.findings import CheckReport, Severity, Stretch

STOP_SHARE = 0.1  #: share of misaligned pairs from which training is not worth its time
COPIED_SHARE = 0.5  #: share of copies from which the target seems to be the wrong file
WARN_SHARE = 0.02  #: share of copies that is mentioned first


def give_verdict(report: CheckReport) -> None:
    """Set the verdict, severity and remedy of a report."""
    report.severity, report.verdict, report.remedy = _verdict(report)


def _verdict(report: CheckReport) -> tuple[Severity, str, tuple[str, ...]]:
    n = max(1, report.n_src)
    clean = ("clean", report.src, report.tgt, "-o", "cleaned")
    by_name = {finding.name: finding for finding in report.findings}
    shifted = [stretch for stretch in report.stretches if stretch.kind == "shifted"]
    n_shifted = sum(stretch.n_lines for stretch in shifted)
    if shifted:
        severity: Severity = "stop" if n_shifted >= STOP_SHARE * n else "warning"
        return severity, _misaligned(shifted, n_shifted, report), (*clean, "--realign")
    if not report.trainable:
        fatal = next(finding for finding in report.findings if finding.fatal)
        where = {"source": f"{report.src}: ", "target": f"{report.tgt}: ", "pair": ""}[fatal.side]
        return "stop", f"{where}{fatal.count:,} {fatal.text}.", ()
    if "swapped_sides" in by_name:
        return "stop", "Source and target are swapped, compared with the training files.", ()
    copied = by_name["copied"].count if "copied" in by_name else 0
    if copied >= COPIED_SHARE * n:
        return "stop", f"The target is a copy of the source in {_of(copied, n)} pairs.", clean
    if report.stretches:
        return _unrelated(report, n, clean)
    if copied >= WARN_SHARE * n:
        return "warning", f"The target is a copy of the source in {_of(copied, n)} pairs.", clean
    for name in ("swapped_pairs", "mojibake", "other_side", "other_script"):
        if name in by_name and by_name[name].count >= WARN_SHARE * n:
            found = by_name[name]
            side = "" if found.side == "pair" else f"{found.side} "
            return "warning", f"{found.count:,} {side}{found.text} ({_percent(found.count, n)}).", clean
    if "few" in by_name:
        n_few = by_name["few"].count
        return "warning", f"{n_few:,} pairs are usable for training, but few: expect a weak model.", ()
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


def _unrelated(report: CheckReport, n: int, clean: tuple[str, ...]) -> tuple[Severity, str, tuple[str, ...]]:
    longest = max(report.stretches, key=lambda stretch: stretch.n_lines)
    total = sum(stretch.n_lines for stretch in report.stretches)
    more = f" Such stretches are {_percent(total, n)} of the corpus."
    text = f"In lines {longest.first:,} to {longest.last:,}, {_SAID[longest.kind]}.{more}"
    return ("stop" if total >= COPIED_SHARE * n else "warning"), text, clean


def _of(count: int, n: int) -> str:
    return f"all {n:,}" if count == n else f"{count:,} of {n:,}"


def _percent(count: int, n: int) -> str:
    share = 100 * count / max(1, n)
    if 99.5 <= share < 100:
        return "over 99 %"
    return f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"
