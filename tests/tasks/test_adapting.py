"""Training on with text of one's own: the preset, general text mixed in, and the comparison before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnkit.analysis.compare_translators import check_tests, compare_translators
from attnkit.data.config import DataConfig
from attnkit.data.pairs import Pairs
from attnkit.data.prepared_dir import DataCheckEvent
from attnkit.engine.resolve import inherited, resolve
from attnkit.errors import DataError, UsageError
from attnkit.metrics.bleu import corpus_bleu
from attnkit.tasks.translation.task import TASK, TrainRequest, train
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.lines import read_lines


def settings(workshop: Any, base: Path | None, *sets: str, preset: str = "auto") -> Any:
    flags = {"data.src": [str(workshop.file("train.src"))], "data.tgt": [str(workshop.file("train.tgt"))]}
    fixed = None if base is None else inherited(base, None)
    return resolve(flags, sets=sets, preset_name=preset, fixed=fixed)


def test_runs_of_translators_are_adapted_by_a_preset_of_small_steps(workshop: Any, trained: Path) -> None:
    found = settings(workshop, trained)
    assert (found.config.preset, found.origin("preset")) == ("adapt", "--init-from")
    assert found.config.limits.early_stopping_patience == 3 and found.config.limits.max_epochs == 10
    width = found.config.model.d_model
    assert found.config.optimization.learning_rate == pytest.approx(0.064 / width, rel=0.01)
    lora = settings(workshop, trained, "adapter.kind=lora").config
    assert lora.optimization.learning_rate == pytest.approx(5 * 0.064 / width, rel=0.01)
    assert settings(workshop, trained, preset="tiny").config.optimization.learning_rate == 2e-3
    assert settings(workshop, trained, "optimization.learning_rate=0.5").config.optimization.learning_rate == 0.5
    assert settings(workshop, None).config.preset == "low-resource"
    with pytest.raises(UsageError, match="the preset adapt needs a translation model to begin from") as caught:
        settings(workshop, None, preset="adapt")
    assert caught.value.help == "name a run: --init-from RUN, or choose one of low-resource, tiny, small, base, big"


def test_a_bert_is_no_translator_to_adapt(workshop: Any, pretrained: Path) -> None:
    assert settings(workshop, pretrained).config.preset == "low-resource"
    with pytest.raises(UsageError, match="needs a translation model"):
        settings(workshop, pretrained, preset="adapt")


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_general_text_is_its_share_of_every_epoch(workshop: Any, tmp_path: Path, share: float) -> None:
    files = {name: list(read_lines(workshop.file(name))) for name in ("train.src", "train.tgt")}
    paths = {}
    for side in ("src", "tgt"):
        for name, part in (("new", slice(0, 40)), ("general", slice(40, 140))):
            paths[f"{name}.{side}"] = path = tmp_path / f"{name}.{side}"
            path.write_text("".join(f"{line}\n" for line in files[f"train.{side}"][part]))
    config = workshop.configure(
        data__src=[str(paths["new.src"])],
        data__tgt=[str(paths["new.tgt"])],
        data__mix_src=[str(paths["general.src"])],
        data__mix_tgt=[str(paths["general.tgt"])],
        data__mix_share=share,
        limits__max_steps=1,
    )
    # ``configure`` names the files of the workshop by flags, which come before settings.
    data = config.data.model_copy(update={"src": (str(paths["new.src"]),), "tgt": (str(paths["new.tgt"]),)})
    events = list(train(TrainRequest(config.model_copy(update={"data": data}), tmp_path / "run")))
    few = {Path(event.report.src).name for event in events if isinstance(event, DataCheckEvent) and is_few(event)}
    assert few == {"new.src"}, "general text may be short"
    pairs = Pairs.open(tmp_path / "run/data/train")
    n_new, n_general = pairs.corpora
    passes = data.sampling_weights(pairs.corpora)
    assert passes is not None and passes[0] == 1.0
    sampler = pairs.sampler(passes)
    assert sampler is not None
    drawn = [np.asarray(sampler(1, epoch)) for epoch in range(3)]
    for rows in drawn:
        general = rows[rows >= n_new]
        assert len(rows) - len(general) == n_new
        assert len(general) == pytest.approx(share / (1 - share) * n_new, abs=1) and len(general) < n_general
    assert set(drawn[0][drawn[0] >= n_new]) != set(drawn[1][drawn[1] >= n_new]), "another part every epoch"
    assert TASK.sampler(config.model_copy(update={"data": data}), type("Data", (), {"pairs": pairs})()) is not None


def is_few(event: DataCheckEvent) -> bool:
    return any(finding.name == "few" for finding in event.report.findings)


def test_weights_and_general_text_together() -> None:
    data = DataConfig(src=("a", "b"), tgt=("c", "d"), weights=(2.0, 0.5), mix_src=("e",), mix_tgt=("f",), mix_share=0.5)
    assert data.sampling_weights([100, 200, 600]) == [2.0, 0.5, 0.5]
    assert DataConfig(src=("a",), tgt=("c",)).sampling_weights([5]) is None
    with pytest.raises(ValueError, match="mix_src has 1 files but mix_tgt has 0"):
        DataConfig(src=("a",), tgt=("c",), mix_src=("e",))
    with pytest.raises(ValueError, match="mix_src cannot be combined with directions"):
        DataConfig(src=("a",), tgt=("c",), mix_src=("e",), mix_tgt=("f",), directions=("en:de",))


def test_comparison_scores_both_runs_and_counts_seen_lines(workshop: Any, trained: Path, tmp_path: Path) -> None:
    config = workshop.configure(limits__max_steps=14, adapter__rank=4, optimization__learning_rate=0.05)
    long = ["seven dogs run over the green meadow near the river", "a man in a blue coat sells bread at the old market"]
    long.append("nobody knows how many birds sleep under that bridge")
    known = {"src": [long[0], f"{long[2]} today"], "tgt": [long[1], "eight words that no line of a test has, today"]}
    for side in ("src", "tgt"):
        (tmp_path / f"own.{side}").write_text("".join(f"{line}\n" for line in long))
        lines = [*read_lines(workshop.file(f"train.{side}")), *known[side]]
        (tmp_path / f"train.{side}").write_text("".join(f"{line}\n" for line in lines))
    files = {side: (str(tmp_path / f"train.{side}"),) for side in ("src", "tgt")}
    config = config.model_copy(update={"data": config.data.model_copy(update=files)})
    workshop.train(config, tmp_path / "run", init_from=trained)
    tests = check_tests(
        [workshop.file("test.src"), tmp_path / "own.src"], [workshop.file("test.tgt"), tmp_path / "own.tgt"]
    )
    told: list[str] = []
    first, second = compare_translators([trained, tmp_path / "run"], tests, tell=told.append)
    lines, refs = (list(read_lines(path)) for path in tests[0])
    for score, run in ((first.scores[0].baseline, trained), (first.scores[0].system, tmp_path / "run")):
        assert score == pytest.approx(corpus_bleu(load_translator([run]).translate(lines), [refs]).score)
    assert [score.name for score in first.scores] == ["BLEU", "chrF2"] and 0 < first.scores[0].p_value <= 1
    assert (first.n_lines, second.n_lines) == (40, 3)
    assert first.seen is not None and second.seen is not None
    assert (second.seen.source, second.seen.target) == (2, 1), "one with a word more, which is nearly the same line"
    assert told[:2] == ["translating test.src", "comparing test.src with the training text"]


def test_what_cannot_be_compared(trained: Path, workshop: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 source and 0 target files"):
        check_tests([workshop.file("test.src")], [])
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="the file is empty"):
        list(compare_translators([trained, trained], [(tmp_path / "empty", tmp_path / "empty")]))
    with pytest.raises(DataError, match="lines"):
        list(compare_translators([trained, trained], [(workshop.file("test.src"), workshop.file("train.tgt"))]))
