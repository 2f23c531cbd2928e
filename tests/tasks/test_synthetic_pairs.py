"""Back-translation and distillation: what is written, what is dropped and why, and that a killed job resumes."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from interrupted import check_kills

import attnkit
from attnkit.data.loader import Batching
from attnkit.data.prepared_dir import WarningEvent
from attnkit.engine.resolve import inherited, resolve
from attnkit.errors import DataError, RunError, UsageError
from attnkit.tasks.translation.data import train_vocabularies
from attnkit.tasks.translation.parallel_data import ParallelData
from attnkit.tasks.translation.synthetic_config import SyntheticConfig
from attnkit.tasks.translation.synthetic_pairs import SyntheticRequest, make_pairs
from attnkit.tasks.translation.task import TrainRequest, train

SHORT: dict[str, Any] = {"max_length": 8}
LOOSE = SyntheticConfig(keep_flagged=True)
WORDS: dict[str, Any] = {"vocabulary.kind": "word", "vocabulary.min_frequency": 1, "evaluation.every_steps": 50}


@pytest.fixture(scope="module")
def words(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose tokens are digits, so that whatever it writes is text."""
    folder = tmp_path_factory.mktemp("words")
    workshop.train(workshop.configure(limits__max_steps=20, **WORDS), folder)
    return folder


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def text(workshop: Any, folder: Path, n: int = 300) -> Path:
    lines = lines_of(workshop.file("test.src"))
    path = folder / "mono"
    path.write_text("".join(f"{lines[i % len(lines)]} {i}\n" for i in range(n)))
    return path


def request(run: Path, source: Path, output: Path, **options: Any) -> SyntheticRequest:
    given = {"config": LOOSE, "search": SHORT, "device": "cpu", "threads": 1, "is_back": True, **options}
    return SyntheticRequest(run, source, output, **given)


def test_back_translation_pairs_each_line_with_its_tagged_translation(
    words: Path, workshop: Any, tmp_path: Path
) -> None:
    source = text(workshop, tmp_path)
    config = SyntheticConfig(tag="<bt>", keep_flagged=True)
    report = make_pairs(request(words, source, tmp_path / "out", config=config))
    translator = attnkit.Translator.load(words, device="cpu", threads=1)
    expected = [found.text for found in translator.translate(lines_of(source), **SHORT)]
    kept = [(one, line) for one, line in zip(expected, lines_of(source), strict=True) if one.strip()]
    assert lines_of(tmp_path / "out" / "pairs.src") == [f"<bt> {one}" for one, _ in kept]
    assert lines_of(tmp_path / "out" / "pairs.tgt") == [line for _, line in kept]
    assert report.n_lines == 300 and report.kept == len(kept) > 200
    assert report.kept + sum(report.dropped.values()) == 300
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written["kept"] == len(kept) and written["tag"] == "<bt>" and written["is_back"] is True
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "dropped.tsv", "pairs.src", "pairs.tgt", "report.json",
    ]  # fmt: skip


def test_distillation_keeps_the_sources(words: Path, workshop: Any, tmp_path: Path) -> None:
    source = text(workshop, tmp_path, 50)
    make_pairs(request(words, source, tmp_path / "out", is_back=False, search={**SHORT, "num_hypotheses": 2}))
    translator = attnkit.Translator.load(words, device="cpu", threads=1)
    found = translator.translate(lines_of(source), num_hypotheses=2, **SHORT)
    expected = []
    for one in found:
        for hypothesis in dict.fromkeys([one.text, *(other.text for other in one.alternatives)]):
            expected += [(one.source, hypothesis)] * bool(hypothesis.strip())
    out = tmp_path / "out"
    assert list(zip(lines_of(out / "pairs.src"), lines_of(out / "pairs.tgt"), strict=True)) == expected


def test_the_hypothesis_nearest_to_the_reference_is_kept(words: Path, workshop: Any, tmp_path: Path) -> None:
    """Kim and Rush 2016, section 3.3: of the n best, the one with the highest sentence BLEU."""
    source, references = workshop.file("test.src"), tmp_path / "references"
    chance = random.Random(1)
    references.write_text("".join(f"{' '.join(chance.sample(line, len(line)))}\n" for line in lines_of(source)))
    options: dict[str, Any] = {"references": references, "is_back": False, "search": {"beam_size": 5, **SHORT}}
    report = make_pairs(request(words, source, tmp_path / "out", **options))
    translator = attnkit.Translator.load(words, device="cpu", threads=1)
    found = translator.translate(lines_of(source), beam_size=5, num_hypotheses=5, **SHORT)
    expected, scores, n_changed = [], [], 0
    for one, reference in zip(found, lines_of(references), strict=True):
        texts = [text for text in (one.text, *(other.text for other in one.alternatives)) if text.strip()]
        rated = [sacrebleu.sentence_bleu(text, [reference]).score for text in texts]
        expected.append(texts[rated.index(max(rated))])
        scores.append(max(rated))
        n_changed += expected[-1] != one.text
    assert lines_of(tmp_path / "out" / "pairs.tgt") == expected and n_changed > 3
    assert report.reference_bleu == pytest.approx(sum(scores) / len(scores))


@pytest.mark.parametrize("sampling", [False, True])
def test_a_killed_job_resumes_and_is_the_same(
    words: Path, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: bool
) -> None:
    source = text(workshop, tmp_path)
    search = {**SHORT, **({"sampling": True, "num_hypotheses": 2} if sampling else {})}
    options: dict[str, Any] = {"search": search, "batching": Batching(window=40)}
    make_pairs(request(words, source, tmp_path / "whole", search=search))
    again = request(words, source, tmp_path / "out", **options)
    check_kills(partial(make_pairs, again), tmp_path / "whole", tmp_path / "out", monkeypatch, seed=int(sampling))


def test_filters_drop_what_they_say(words: Path, workshop: Any, tmp_path: Path) -> None:
    """Each threshold is checked against scores that other calls compute."""
    other = tmp_path / "forward"
    workshop.train(workshop.configure(seed=5, limits__max_steps=8, **WORDS), other)
    source = text(workshop, tmp_path, 120)
    translator, back = (attnkit.Translator.load(run, device="cpu", threads=1) for run in (words, other))
    found = translator.translate(lines_of(source), **SHORT)
    means = [one.log_prob / (len(one.tokens) + 1) for one in found]
    forward = [score.log_prob / score.n_tokens for score in back.score([one.text for one in found], lines_of(source))]
    texts = [one.text for one in back.translate([one.text for one in found], beam_size=1)]
    trips = [sacrebleu.sentence_chrf(text, [line]).score for text, line in zip(texts, lines_of(source), strict=True)]
    least = [sorted(values)[len(values) // 4] + 1e-5 for values in (means, forward, trips)]
    config = SyntheticConfig(
        keep_flagged=True, min_log_prob=least[0], min_forward_log_prob=least[1], min_round_trip=least[2]
    )
    report = make_pairs(request(words, source, tmp_path / "out", config=config, forward=other))
    expected = [
        "empty" if not one.text.strip() else
        "low_log_prob" if means[i] < least[0] else
        "low_forward_log_prob" if forward[i] < least[1] else
        "low_round_trip" if trips[i] < least[2] else None
        for i, one in enumerate(found)
    ]  # fmt: skip
    assert report.dropped == Counter(reason for reason in expected if reason)
    assert {"low_log_prob", "low_forward_log_prob", "low_round_trip"} <= report.dropped.keys()
    kept = [one.text for one, reason in zip(found, expected, strict=True) if reason is None]
    assert lines_of(tmp_path / "out" / "pairs.src") == kept
    rows = [line.split("\t") for line in lines_of(tmp_path / "out" / "dropped.tsv")]
    assert [row[1] for row in rows] == [reason for reason in expected if reason]
    assert [int(row[0]) for row in rows] == [i for i, reason in enumerate(expected, 1) if reason]


def test_blank_flagged_and_repeated_pairs_are_dropped(words: Path, workshop: Any, tmp_path: Path) -> None:
    source = tmp_path / "mono"
    source.write_text("1 2 3\n\n\u200b\n1 2 3\n")
    options: dict[str, Any] = {"config": SyntheticConfig(), "search": {"max_length": 1}}
    with pytest.raises(DataError, match="no pair is left"):
        make_pairs(request(words, source, tmp_path / "cut", **options))
    report = json.loads((tmp_path / "cut" / "report.json").read_text())
    assert report["dropped"] == {"blank": 2, "cut": 2}
    search = {"sampling": True, "num_hypotheses": 20, "max_length": 1}
    report = make_pairs(request(words, source, tmp_path / "sampled", search=search)).dropped
    assert report["blank"] == 2 and report["duplicate"] > 0
    pairs = lines_of(tmp_path / "sampled" / "pairs.src")
    assert len(pairs) + sum(report.values()) == 42 and len(set(pairs[: len(pairs) // 2])) == len(pairs) // 2


def test_wrong_requests_leave_no_folder(words: Path, workshop: Any, tmp_path: Path) -> None:
    source, out = text(workshop, tmp_path, 10), tmp_path / "out"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"config": SyntheticConfig(min_round_trip=30.0)}, "require --forward"),
        ({"forward": tmp_path}, "--forward requires"),
        ({"config": SyntheticConfig(min_round_trip=30.0), "forward": words}, "cannot translate both ways"),
        ({"references": source, "search": {"beam_size": 1}}, "several hypotheses"),
        ({"search": {"beam_size": 2, "num_hypotheses": 3}}, "num_hypotheses cannot exceed beam_size"),
        ({"text": Path("-")}, "can be read only once"),
    ]
    for options, message in refused:
        with pytest.raises(UsageError, match=message):
            make_pairs(request(words, options.pop("text", source), out, **options))
        assert not out.exists()
    short = tmp_path / "short"
    short.write_text("1\n")
    with pytest.raises(DataError, match="has 10 lines and"):
        make_pairs(request(words, source, out, references=short))
    assert not out.exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="holds other files"):
        make_pairs(request(words, source, tmp_path / "other"))
    make_pairs(request(words, source, out))
    with pytest.raises(UsageError, match=r"is finished, with other input or settings: .*min_log_prob: null -> -9.0\n"):
        make_pairs(request(words, source, out, config=SyntheticConfig(min_log_prob=-9.0)))
    make_pairs(request(words, source, out, overwrite=True, search={**SHORT, "beam_size": 1}))


def test_a_finished_job_is_not_done_again(
    words: Path, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = text(workshop, tmp_path, 10), tmp_path / "out"
    job = request(words, source, out)
    report = make_pairs(job)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("attnkit.tasks.translation.engines.EngineSearch._backend", None)  # no weights are loaded
        assert make_pairs(job) == report
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.iterdir()} == before
    os.utime(source, ns=(1, 1))
    with pytest.raises(UsageError, match=r"is finished, with other input or settings: files\n"):
        make_pairs(job)
    make_pairs(replace(job, overwrite=True))
    (out / "pairs.tgt").unlink()
    with pytest.raises(RunError, match=r"is finished, but pairs.tgt is missing"):
        make_pairs(job)
    (out / "pairs.tgt").write_text("")
    (out / "report.json").write_text("[]")
    with pytest.raises(RunError, match=r"report.json is damaged"):
        make_pairs(job)
    nothing = request(words, source, tmp_path / "nothing", config=SyntheticConfig(min_log_prob=0.0))
    for _ in range(2):  # an empty result stays one
        with pytest.raises(DataError, match="no pair is left"):
            make_pairs(nothing)


def test_an_unfinished_job_has_one_set_of_options(
    words: Path, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = text(workshop, tmp_path, 10), tmp_path / "out"
    with monkeypatch.context() as patch:

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("attnkit.io.atomic.append_bytes", stop)
        with pytest.raises(KeyboardInterrupt):
            make_pairs(request(words, source, out))
    with pytest.raises(UsageError, match="other input or settings"):
        make_pairs(request(words, source, out, config=SyntheticConfig(keep_flagged=True, tag="<x>")))
    assert make_pairs(request(words, source, out)).n_lines == 10


def test_memory_does_not_grow_with_the_text(
    words: Path, workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than a window of lines is ever held: the writer is given one at a time."""
    from attnkit.tasks.translation import synthetic_pairs

    sizes: list[int] = []
    real = synthetic_pairs.PairWriter.write

    def write(self: Any, window: Any, *rest: Any) -> Any:
        sizes.append(len(window))
        return real(self, window, *rest)

    monkeypatch.setattr(synthetic_pairs.PairWriter, "write", write)
    make_pairs(request(words, text(workshop, tmp_path, 110), tmp_path / "out", batching=Batching(window=25)))
    assert sizes == [25, 25, 25, 25, 10]


def test_training_knows_the_tag(workshop: Any, tmp_path: Path) -> None:
    """The tag is one symbol of the vocabulary, and tagged pairs are not held out for validation."""
    src = lines_of(workshop.file("train.src"))
    (tmp_path / "bt.src").write_text("".join(f"<bt> {line}\n" for line in src))
    config = workshop.configure(data__valid_src=None, data__valid_tgt=None, data__held_out=100)
    data = config.data.model_copy(
        update={
            "valid_src": None,
            "valid_tgt": None,
            "src": (str(tmp_path / "bt.src"), *config.data.src),
            "tgt": (*config.data.tgt, *config.data.tgt),
        }
    )
    corpora = ParallelData(data)
    assert len(corpora.valid) == 8 and not any(line.startswith("<bt>") for line, _ in corpora.valid)
    pairs = list(corpora.pairs())
    assert corpora.n_held_out == 8 and set(corpora.valid).isdisjoint(pairs)
    assert sum(line.startswith("<bt>") for line, _ in pairs) == len(src)
    config = config.model_copy(update={"data": data})
    tokenizer = train_vocabularies(config, None, corpora.lines).src
    (ids,) = tokenizer.encode(["<bt> 1 2"])
    assert tokenizer.token_id("<bt>") in ids
    assert train_vocabularies(workshop.configure(), None, corpora.lines).src.token_id("<bt>") is None
    alone = data.model_copy(update={"src": data.src[:1], "tgt": data.tgt[:1]})
    assert ParallelData(alone).valid, "there is nothing else to validate by"


def test_a_given_vocabulary_without_the_tag_is_told(words: Path, workshop: Any, tmp_path: Path) -> None:
    (tmp_path / "bt.src").write_text("".join(f"<bt> {line}\n" for line in lines_of(workshop.file("train.src"))))
    flags = {"data.src": [str(tmp_path / "bt.src")], "data.tgt": [str(workshop.file("train.tgt"))]}
    flags |= {"data.valid_src": [str(workshop.file("valid.src"))], "data.valid_tgt": [str(workshop.file("valid.tgt"))]}
    sets = workshop.settings("transformer", limits__max_steps=1)
    config = resolve(flags, sets=sets, preset_name="tiny", fixed=inherited(words, None)).config
    events = list(train(TrainRequest(config, tmp_path / "run", init_from=words)))
    told = [event.text for event in events if isinstance(event, WarningEvent)]
    assert [text for text in told if "has no symbol <bt>" in text and "--add-symbols" in text]


def test_the_library_has_both(words: Path, workshop: Any, tmp_path: Path) -> None:
    source = text(workshop, tmp_path, 30)
    loose = {"keep_flagged": True}
    report = attnkit.back_translate(words, source, tmp_path / "back", settings=loose, device="cpu", quiet=True, **SHORT)
    assert report.kept and all(line.startswith("<bt> ") for line in lines_of(tmp_path / "back" / "pairs.src"))
    report = attnkit.distill(
        words, source, tmp_path / "out", tgt=source, settings=loose, device="cpu", quiet=True, beam_size=2, **SHORT
    )
    assert report.reference_bleu is not None and report.n_lines == 30
    with pytest.raises(UsageError, match="unknown key"):
        attnkit.distill(words, source, tmp_path / "wrong", settings={"tagg": ""}, quiet=True)
