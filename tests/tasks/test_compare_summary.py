"""Comparison of files of translations, means over seeds, and the table in LaTeX."""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import attnkit
from attnkit.analysis.compare_summary import escape_latex, group_systems, latex_table, summarize
from attnkit.analysis.compare_translators import TestComparison, check_systems, compare_translators
from attnkit.errors import DataError, UsageError
from attnkit.metrics.bleu import Comparison
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.lines import read_lines

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def seeds(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs that differ in the seed alone, and one of another learning rate."""
    folder = tmp_path_factory.mktemp("seeds")
    for name, more in (("a", {}), ("b", {"seed": 5}), ("c_", {"seed": 5, "optimization__learning_rate": 1e-3})):
        workshop.train(workshop.configure(limits__max_steps=3, **more), folder / name)
    return [folder / name for name in ("a", "b", "c_")]


@pytest.fixture(scope="module")
def translations(workshop: Any, seeds: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The test translations of two of the runs."""
    folder, source = tmp_path_factory.mktemp("outputs"), list(read_lines(workshop.file("test.src")))
    paths = [folder / name for name in ("first", "second.gz")]
    for run, path in zip((seeds[0], seeds[2]), paths, strict=True):
        text = "".join(f"{line}\n" for line in load_translator([run]).translate(source)).encode()
        path.write_bytes(gzip.compress(text) if path.suffix else text)
    return paths


def test_files_have_the_scores_of_the_runs_that_wrote_them(
    workshop: Any, seeds: list[Path], translations: list[Path]
) -> None:
    test = workshop.file("test.src"), workshop.file("test.tgt")
    for name in ("bootstrap", "randomization"):
        (of_runs,) = compare_translators([seeds[0], seeds[2]], [test], test=name, groups=True, n_lines=3)
        (of_files,) = compare_translators(translations, [test], test=name, groups=True, n_lines=3)
        (mixed,) = compare_translators([seeds[0], translations[1]], [test], test=name)
        assert of_files.scores == of_runs.scores == mixed.scores
        assert ("|ar:10000|" in of_runs.scores[0].signature) == (name == "randomization")
    assert of_files.seen is None and of_files.changed == of_runs.changed
    of_training = ("times the rarest word was in training", "source nearly in the training text")
    assert of_files.groups == [one for one in of_runs.groups or [] if one.property not in of_training]
    found = attnkit.compare(translations, [test], test="randomization")
    assert found == [replace(of_files, groups=None, changed=None)]


def test_without_source_the_reference_decides_on_groups(workshop: Any, translations: list[Path]) -> None:
    (one,) = compare_translators(translations, [(None, workshop.file("test.tgt"))], groups=True, n_lines=3)
    names = {group.property for group in one.groups or []}
    assert names == {"words of the reference", "numbers in the reference", "names in the reference"}
    for name in names:
        assert sum(group.n_lines for group in one.groups or [] if group.property == name) == one.n_lines == 40
    assert (one.src, one.tgt) == (None, str(workshop.file("test.tgt")))
    assert one.changed and {line.source for line in one.changed} == {None}


def test_the_command_takes_files(workshop: Any, translations: list[Path], call: Call) -> None:
    tgt = workshop.file("test.tgt")
    code, out, _ = call("compare", *translations, "--tgt", tgt, "--test", "randomization", "--groups", "--lines", 1)
    assert code == 0 and out.startswith(f"{tgt}: 40 lines\n  BLEU ") and "overlap" not in out
    assert "words of the reference" in out and "reference  " in out and "source  " not in out
    (tree,) = json.loads(call("compare", *translations, "--tgt", tgt, "--test", "randomization", "--json")[1])
    assert tree["src"] is None and "|ar:10000|" in tree["scores"][0]["signature"]


def test_what_cannot_be_compared(workshop: Any, seeds: list[Path], translations: list[Path], tmp_path: Path) -> None:
    src, tgt = workshop.file("test.src"), workshop.file("test.tgt")
    with pytest.raises(UsageError, match="two runs are compared"):
        check_systems(translations[:1], [], [tgt])
    with pytest.raises(UsageError, match="one test file, not 2 --tgt and 0 --src"):
        check_systems(translations, [], [tgt, tgt])
    with pytest.raises(UsageError, match="one test file, not 0 --tgt and 1 --src"):
        check_systems(translations, [src], [])
    with pytest.raises(UsageError, match="a run needs the source of the test"):
        check_systems([translations[0], seeds[0]], [], [tgt])
    with pytest.raises(UsageError, match="standard input can be only one"):
        check_systems([Path("-"), translations[0]], [], [Path("-")])
    with pytest.raises(UsageError, match="0 source and 1 target files"):
        check_systems(seeds, [], [tgt])
    with pytest.raises(DataError, match=r"has 40 lines and .* has 160"):
        list(compare_translators(translations, [(None, workshop.file("train.tgt"))]))
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="the file is empty"):
        list(compare_translators(translations, [(None, tmp_path / "empty")]))


def test_runs_that_differ_in_the_seed_are_one_row(workshop: Any, seeds: list[Path], translations: list[Path]) -> None:
    a, b, c = map(str, seeds)
    assert group_systems([c, a, b]) == [[c], [a, b]]
    assert group_systems([a, str(translations[0]), c, a]) == [[a], [str(translations[0])], [c]]
    test = workshop.file("test.src"), workshop.file("test.tgt")
    compared = list(compare_translators([seeds[2], seeds[0], seeds[1]], [test, test]))
    rows = summarize(compared[:2])
    assert [row.systems for row in rows] == [[c], [a, b]] and {row.n_lines for row in rows} == {40}
    for k in range(2):
        scores = [one.scores[k].system for one in compared[:2]]
        assert rows[0].scores[k].mean == compared[0].scores[k].baseline
        assert (rows[0].scores[k].deviation, rows[0].scores[k].p_value) == (None, None)
        assert rows[1].scores[k].mean == pytest.approx(statistics.mean(scores))
        assert rows[1].scores[k].deviation == pytest.approx(statistics.stdev(scores))
        assert rows[1].scores[k].p_value == max(one.scores[k].p_value for one in compared[:2])


def compared(system: str, scores: tuple[float, float], p: float, src: str | None = "a/test_1.en") -> TestComparison:
    found = [
        Comparison(name, f"{name}|nrefs:1|bs:1000", before, 1.5, after, 1.5, 1.0 if before == after else p)
        for name, before, after in (("BLEU", 30.0, scores[0]), ("chrF2", 55.0, scores[1]))
    ]
    return TestComparison("run_1", system, src, "test.de", 1234, None, found)


TABLE = r"""% BLEU|nrefs:1|bs:1000
% chrF2|nrefs:1|bs:1000
% \pm: standard deviation of a single run, over seeds
% p: paired test with the first system; of several runs, the largest
\begin{tabular}{lrrrrr}
\toprule
system & runs & BLEU & $p$ & chrF2 & $p$ \\
\midrule
\multicolumn{6}{l}{\emph{test\_1.en, 1234 lines}} \\
run\_1 & 1 & 30.00 & -- & 55.00 & -- \\
r\&d \textbackslash{}50\% & 1 & 31.25 & 0.0200 & 55.00 & 1.0000 \\
\midrule
\multicolumn{6}{l}{\emph{test.de, 1234 lines}} \\
run\_1 & 1 & 30.00 & -- & 55.00 & -- \\
r\&d \textbackslash{}50\% & 1 & 29.00 & 0.0010 & 56.00 & 0.0010 \\
\bottomrule
\end{tabular}"""


def test_the_table_in_latex() -> None:
    system = "r&d \\50%"
    assert latex_table([compared(system, (31.25, 55.0), 0.02), compared(system, (29.0, 56.0), 0.001, None)]) == TABLE
    assert escape_latex("a{b}~^$#\n\x1b") == r"a\{b\}\textasciitilde{}\textasciicircum{}\$\#??"


def test_the_commands_tables(workshop: Any, seeds: list[Path], call: Call) -> None:
    asked = ["compare", seeds[2], *seeds[:2], "--src", workshop.file("test.src"), "--tgt", workshop.file("test.tgt")]
    rows = json.loads(call(*asked, "--seeds", "--json")[1])
    mean, spread = (rows[1]["scores"][0][name] for name in ("mean", "deviation"))
    code, out, _ = call(*asked, "--latex")
    assert code == 0 and rf" & 2 & {mean:.2f} $\pm$ {spread:.2f} & " in out and r"c\_ & 1 & " in out
    code, out, _ = call(*asked, "--seeds")
    table = out.splitlines()
    assert table[1].split() == ["first", "run", "runs", "BLEU", "±", "s.d.", "p", "chrF", "±", "s.d.", "p"]
    assert table[3].split()[1:5] == ["2", f"{mean:.2f}", "±", f"{spread:.2f}"]
    for more in (["--latex", "--json"], ["--latex", "--groups"], ["--seeds", "--lines", "3"]):
        code, out, err = call(*asked, *more)
        assert (code, out) == (2, "") and "--latex" in err
