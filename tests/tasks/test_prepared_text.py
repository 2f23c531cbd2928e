"""From raw text to encoded pairs: what is held out, what is left out, and that all of it is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnkit.engine.resolve import resolve
from attnkit.errors import DataError, RunError
from attnkit.tasks.translation import data
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.data import TranslationData, WarningEvent, open_prepared, prepare
from attnkit.text import encoding


def write(path: Path, lines: list[str]) -> str:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return str(path)


def configure(src: list[str], tgt: list[str], **changes: Any) -> TranslationConfig:
    flags = {"data.src": src, "data.tgt": tgt, "vocabulary.kind": "char", "vocabulary.byte_fallback": False}
    flags |= {key.replace("__", "."): value for key, value in changes.items()}
    return resolve(flags, preset_name="tiny").config


def run(config: TranslationConfig, folder: Path) -> TranslationData:
    for _ in prepare(config, folder):
        pass
    return open_prepared(folder)


def texts(prepared: TranslationData) -> list[tuple[str, str]]:
    """Return the training pairs as text."""
    sides = [
        tokenizer.decode([store[i].tolist() for i in range(len(store))])
        for tokenizer, store in (
            (prepared.vocabularies.src, prepared.pairs.src),
            (prepared.vocabularies.tgt, prepared.pairs.tgt),
        )
    ]
    return list(zip(*sides, strict=True))


SRC = [f"source {n}" for n in range(200)]
TGT = [f"target {n}" for n in range(200)]


def test_a_seed_decides_what_is_held_out(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.src", SRC)], [write(tmp_path / "a.tgt", TGT)]
    held = []
    for number, seed in enumerate((1, 1, 2)):
        config = configure(*files, data__held_out=8, data__held_out_seed=seed, seed=number)
        prepared = run(config, tmp_path / f"data{number}")
        held.append(prepared.valid_src)
        assert len(prepared.valid_src) == 8 and len(prepared.pairs) == 192
        assert [line.replace("source", "target") for line in prepared.valid_src] == prepared.valid_tgt
        together = texts(prepared) + list(zip(prepared.valid_src, prepared.valid_tgt, strict=True))
        assert sorted(together) == sorted(zip(SRC, TGT, strict=True))
    assert held[0] == held[1] != held[2]


def test_at_most_a_twentieth_is_held_out(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.src", SRC)], [write(tmp_path / "a.tgt", TGT)]
    assert len(run(configure(*files), tmp_path / "data").valid_src) == 10


def test_training_never_sees_a_held_out_source(tmp_path: Path) -> None:
    """Every source comes five times, so a held-out one has four repeats."""
    src, tgt = [f"source {'abcdefgh'[n % 40 // 5]}{'vwxyz'[n % 5]}" for n in range(200)], TGT
    files = [write(tmp_path / "a.src", src)], [write(tmp_path / "a.tgt", tgt)]
    prepared = run(configure(*files, data__held_out=3), tmp_path / "data")
    assert not {pair[0] for pair in texts(prepared)} & set(prepared.valid_src)
    counts = prepared.counts
    different = len(set(prepared.valid_src))
    assert (counts["read"], counts["held_out"]) == (200, 3)
    assert counts["repeats_of_held_out"] == 5 * different - 3
    assert counts["train"] == 200 - 5 * different == len(prepared.pairs)


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    src = [*SRC[:100], "", "x", "", "y" * 40, "z " * 30]
    tgt = [*TGT[:100], "a", "", "", "Y" * 40, "z"]
    files = [write(tmp_path / "a.src", src)], [write(tmp_path / "a.tgt", tgt)]
    valid = [write(tmp_path / "v.src", SRC[150:])], [write(tmp_path / "v.tgt", TGT[150:])]
    changes = {"data__valid_src": valid[0], "data__valid_tgt": valid[1], "data__max_length": 30, "data__max_ratio": 9}
    counts = run(configure(*files, **changes), tmp_path / "data").counts
    assert (counts["blank_source"], counts["blank_target"], counts["blank"]) == (1, 1, 1)
    assert counts["too_long"] + counts["ratio"] + counts["odd_ratio"] == 2
    assert counts["too_long"] >= 1
    assert (counts["read"], counts["train"], counts["valid"], counts["held_out"]) == (105, 100, 50, 0)


def test_held_out_pairs_are_such_as_training_would_keep(tmp_path: Path) -> None:
    src, tgt = [*SRC, *[""] * 100, *["z " * 200] * 100], [*TGT, *["a"] * 100, *["z"] * 100]
    files = [write(tmp_path / "a.src", src)], [write(tmp_path / "a.tgt", tgt)]
    prepared = run(configure(*files, data__held_out=20), tmp_path / "data")
    assert 0 < len(prepared.valid_src) < 20 and set(prepared.valid_src) <= set(SRC)
    counts = prepared.counts
    assert (counts["read"], counts["blank_source"], counts["odd_ratio"]) == (400, 100, 100)
    assert counts["train"] + counts["valid"] == 200


def test_what_validation_leaves_out_is_counted(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.src", SRC)], [write(tmp_path / "a.tgt", TGT)]
    valid = [write(tmp_path / "v.src", ["a", "", "b", "c " * 3000])], [write(tmp_path / "v.tgt", ["a", "b", " ", "c"])]
    config = configure(*files, data__valid_src=valid[0], data__valid_tgt=valid[1])
    prepared = run(config, tmp_path / "data")
    assert prepared.valid_tgt == ["a", "c"] and len(prepared.valid) == 1
    assert (prepared.counts["blank_in_validation"], prepared.counts["without_validation_loss"]) == (2, 1)


def test_odd_ratios_can_be_kept(tmp_path: Path) -> None:
    src, tgt = [*SRC, "z " * 100], [*TGT, "z"]
    files = [write(tmp_path / "a.src", src)], [write(tmp_path / "a.tgt", tgt)]
    for limit, odd in ((9.0, 1), (1e9, 0)):
        config = configure(*files, data__max_character_ratio=limit, data__max_ratio=1000.0)
        counts = run(config, tmp_path / f"data{odd}").counts
        assert (counts["odd_ratio"], counts["train"] + counts["valid"]) == (odd, 201 - odd)


def test_a_vocabulary_that_does_not_know_the_text_is_told(tmp_path: Path) -> None:
    src, tgt = [f"{n} strange{n}" for n in range(100)], ["plain words"] * 100
    files = [write(tmp_path / "a.src", src)], [write(tmp_path / "a.tgt", tgt)]
    config = configure(*files, vocabulary__kind="word")
    told = [event.text for event in prepare(config, tmp_path / "data") if isinstance(event, WarningEvent)]
    assert told == ["100.0% of the source tokens are unknown to the vocabulary"]


def test_several_files_keep_their_order_and_their_weights(tmp_path: Path) -> None:
    from attnkit.data.loader import BatchLoader, DataPosition

    src = [write(tmp_path / "a.src", SRC[:60]), write(tmp_path / "b.src", SRC[60:100])]
    tgt = [write(tmp_path / "a.tgt", TGT[:60]), write(tmp_path / "b.tgt", TGT[60:100])]
    valid = [write(tmp_path / "v.src", SRC[150:])], [write(tmp_path / "v.tgt", TGT[150:])]
    config = configure(src, tgt, data__weights=[2.0, 0.5], data__valid_src=valid[0], data__valid_tgt=valid[1])
    prepared = run(config, tmp_path / "data")
    assert texts(prepared) == list(zip(SRC[:100], TGT[:100], strict=True))
    feed = BatchLoader(prepared.pairs, 1, 10**6, sampler=prepared.pairs.sampler(config.data.weights))
    step, _ = feed.batch_at(DataPosition())
    drawn = prepared.vocabularies.src.decode([row[row > 0].tolist() for row in step.micro_batches[0].src])
    assert len(drawn) == 2 * 60 + 40 // 2
    assert all(drawn.count(line) == 2 for line in SRC[:60])


def test_held_out_lines_come_from_all_files(tmp_path: Path) -> None:
    src = [write(tmp_path / "a.src", SRC[:100]), write(tmp_path / "b.src", SRC[100:])]
    tgt = [write(tmp_path / "a.tgt", TGT[:100]), write(tmp_path / "b.tgt", TGT[100:])]
    prepared = run(configure(src, tgt), tmp_path / "data")
    assert {int(line.split()[1]) >= 100 for line in prepared.valid_src} == {True, False}
    assert [line.replace("source", "target") for line in prepared.valid_src] == prepared.valid_tgt
    assert len(texts(prepared)) == 190
    assert all(source.split()[1] == target.split()[1] for source, target in texts(prepared))


def test_two_vocabularies_know_their_own_side_alone(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.src", ["abc ab"] * 30)], [write(tmp_path / "a.tgt", ["xyz xy"] * 30)]
    valid = {
        "data__valid_src": [write(tmp_path / "v.src", ["c a"])],
        "data__valid_tgt": [write(tmp_path / "v.tgt", ["z"])],
    }
    prepared = run(configure(*files, joint_vocabulary=False, **valid), tmp_path / "data")
    unknown = prepared.vocabularies.src.encode(["x"])[0]
    assert prepared.vocabularies.tgt.encode(["a"])[0] == unknown == [3]
    assert set(prepared.vocabularies.files()) == {"tokenizer.json", "tokenizer.target.json"}
    joint = run(configure(*files, **valid), tmp_path / "joint")
    assert joint.vocabularies.src is joint.vocabularies.tgt
    assert joint.vocabularies.src.decode(joint.vocabularies.src.encode(["ax"])) == ["ax"]


def test_preparing_again_opens_what_is_there(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.src", SRC)], [write(tmp_path / "a.tgt", TGT)]
    first = run(configure(*files), tmp_path / "data")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")}
    again = run(configure(*files), tmp_path / "data")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")} == before
    assert again.pairs.fingerprint == first.pairs.fingerprint and again.counts == first.counts


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        (SRC, TGT[:-1], "has 200 lines and .* has 199"),
        ([""] * 50, [""] * 50, "50 pairs, none usable for training"),
        (["a"] * 50, ["", *["b"] * 49], "no text to build a vocabulary from"),
        (["a"], ["b"], "too few"),
    ],
)
def test_text_that_cannot_be_trained_on(tmp_path: Path, src: list[str], tgt: list[str], message: str) -> None:
    config = configure([write(tmp_path / "a.src", src)], [write(tmp_path / "a.tgt", tgt)])
    with pytest.raises(DataError, match=message):
        run(config, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_undecodable_bytes_are_refused_with_file_and_line(tmp_path: Path) -> None:
    config = configure([write(tmp_path / "a.src", SRC)], [write(tmp_path / "a.tgt", TGT)])
    content = (tmp_path / "a.tgt").read_bytes().replace(b"target 70\n", b"target \xff\n")
    (tmp_path / "a.tgt").write_bytes(content)
    with pytest.raises(DataError) as caught:
        run(config, tmp_path / "data")
    assert caught.value.where == f"{tmp_path / 'a.tgt'}:71"


def test_a_flipped_bit_in_encoded_text_is_seen_before_it_is_trained_on(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.src", SRC)], [write(tmp_path / "a.tgt", TGT)]
    run(configure(*files, data__held_out=8), tmp_path / "data")
    encoded = sorted((tmp_path / "data").rglob("*.bin"))
    assert len(encoded) == 8
    for path in encoded:
        good = path.read_bytes()
        path.write_bytes(bytes([good[0] ^ 1]) + good[1:])
        with pytest.raises(RunError, match=rf"(text|data) is damaged: .*{path.name}"):
            open_prepared(tmp_path / "data")
        path.write_bytes(good)
    open_prepared(tmp_path / "data")


def test_several_processes_write_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write(tmp_path / "a.src", SRC * 3)], [write(tmp_path / "a.tgt", TGT * 3)]
    config = configure(*files, data__max_length=9, joint_vocabulary=False)
    monkeypatch.setattr(data, "_CHUNK", 16)
    found = []
    for n_cpus in (1, 2):
        monkeypatch.setattr(encoding, "usable_cpus", lambda n=n_cpus: n)
        monkeypatch.setattr(encoding, "AT_ONCE", 0)
        prepared = run(config, tmp_path / f"data{n_cpus}")
        assert prepared.pairs.dropped.too_long > 0
        folder = tmp_path / f"data{n_cpus}"
        found.append({p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()})
    assert found[0] == found[1] and len(found[0]) > 10


def test_the_vocabulary_of_a_run_may_be_that_of_a_sample(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.src", SRC)], [write(tmp_path / "a.tgt", TGT)]
    config = configure(*files, vocabulary__kind="word", vocabulary__min_frequency=1, vocabulary__sample_lines=20)
    joint = run(config, tmp_path / "data").vocabularies.src
    assert joint.config.sample_lines == 20 and joint.vocab_size <= 32 and joint.n_words == 4 + 20 + 2
