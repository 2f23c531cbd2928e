"""The profile of training pairs: what is unusual is flagged, and the training pairs themselves are not."""

from __future__ import annotations

import json
import random
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.seq2seq import LocalSearch
from attnkit.errors import RunError
from attnkit.quality.languages import SIZE
from attnkit.quality.profile import MIN_PAIRS, TrainingProfile, copied_share, learn_profile
from attnkit.tasks.translation.loading import TRAINING_PROFILE, open_run
from attnkit.tasks.translation.signs import Sign, find_length_signs, find_signs, find_source_signs
from attnkit.tasks.translation.translator import TranslationPipeline
from attnkit.text.toy.corpus import make_files


def learn(pairs: list[tuple[str, str]], **changes: Any) -> TrainingProfile:
    """Learn from pairs whose tokens are words."""
    lengths = [(len(src.split()), len(tgt.split())) for src, tgt in pairs]
    characters = {character for src, _ in pairs for character in src}
    given = {"lengths": lengths, "characters": characters, "normalize": str, **changes}
    return learn_profile(pairs, **given)


def source_counts(lines: list[str], profile: TrainingProfile) -> Counter[Sign]:
    return Counter(sign for own in find_source_signs(lines, profile, str) for sign in own)


@pytest.fixture(scope="module")
def files() -> dict[str, list[str]]:
    return make_files("english-french", 4000, 1, n_valid=300, n_test=300)


@pytest.fixture(scope="module")
def profile(files: dict[str, list[str]]) -> TrainingProfile:
    return learn(list(zip(files["train.en"], files["train.fr"], strict=True)))


def test_text_of_another_kind_is_unlike_the_training_text(
    files: dict[str, list[str]], profile: TrainingProfile
) -> None:
    draw = random.Random(1)
    shuffled = [" ".join("".join(draw.sample(w, len(w))) for w in line.split()) for line in files["test.en"]]
    cyrillic = ["Привет", "Собака бежит по улице.", "Он читает книгу."]
    assert source_counts(files["test.en"], profile)["unlike"] <= 2
    assert source_counts(files["test.fr"], profile)["unlike"] >= 290
    assert source_counts(shuffled, profile)["unlike"] >= 290
    assert source_counts(cyrillic, profile)["unlike"] == 3
    assert source_counts(["", "."], profile)["unlike"] == 0


def test_characters_are_known_if_their_normal_form_is(profile: TrainingProfile) -> None:
    assert source_counts(["The dog \u00a0runs.", "The ☃ runs.", "The ﬁeld."], profile)["unknown"] == 2

    def normalize(text: str) -> str:
        return unicodedata.normalize("NFKC", text)

    found = find_source_signs(["The ﬁeld.", "The ☃ runs."], profile, normalize)
    assert ["unknown" in signs for signs in found] == [False, True]


def undecoded(rows: Sequence[list[int]]) -> list[str]:
    raise AssertionError("only a short line is decoded")


def test_lengths_outside_of_those_of_training_are_flagged() -> None:
    """4,000 pairs: sources of 5 to 20 tokens, targets of twice as many, EOS included."""
    draw = random.Random(2)
    lengths = [(n, 2 * n + 1) for n in (draw.randint(5, 20) for _ in range(4000))]
    profile = learn([("a b", "c d")] * 4000, lengths=lengths)
    assert profile.source_tokens == (5, 20)
    assert profile.ratio_limits(10) == pytest.approx((2 / 1.1, 2 * 1.1), rel=1e-3)

    def signs(n_source: int, n_target: int, text: str = "a dog") -> list[Sign]:
        return find_length_signs([[9] * n_source], [[9] * n_target], profile, lambda rows: [text for _ in rows])

    assert signs(10, 21) == signs(5, 11) == signs(20, 41) == []
    assert signs(4, 9) == signs(21, 43) == ["length"]
    # A whole sentence may be half as long, and no longer.
    assert signs(3, 7, "Dogs run.") == signs(3, 7, "「犬。」") == signs(3, 7, 'Go ("run!")') == []
    assert signs(2, 5, "Run.") == signs(21, 43, "Dogs run.") == ["length"]
    assert signs(10, 18) == ["short"] and signs(10, 24) == ["long"]
    assert signs(10, 0) == []  # that is another sign
    assert find_length_signs([[9] * 10, [9] * 10], [[9] * 21, [9] * 3], profile, undecoded) == ["short"]


def test_copies_and_repetitions_are_measured_against_the_training_pairs() -> None:
    draw = random.Random(3)
    words = [f"w{i}" for i in range(500)]

    def line() -> str:
        return " ".join(draw.sample(words, 10))

    plain = learn([(line(), line()) for _ in range(2000)])
    assert (plain.copied, plain.repeats) == (0.5, 2)
    twice = learn([(line(), f"{line()} x x") for _ in range(2000)])
    assert twice.repeats == 3
    copies = learn([(own := line(), own if i % 20 == 0 else line()) for i in range(2000)])
    assert copies.copied is None

    def signs(text: str, profile: TrainingProfile) -> list[Sign]:
        return find_signs("Aaa bbb ccc ddd", text, finished=True, source_ids=[[5]], profile=profile)

    assert signs("aaa bbb eee ccc", plain) == ["copied"]  # three of four words
    assert signs("aaa bbb eee fff", plain) == []
    assert signs("aaa bbb ccc ddd", copies) == []
    assert signs("eee eee fff", plain) == ["repeated"] and signs("eee eee fff", twice) == []
    assert signs("eee eee eee", twice) == ["repeated"]
    assert copied_share(["a", "a", "b"], ["a", "a", "a", "c"]) == 0.5


@pytest.mark.parametrize("kind", ["reverse", "code", "summary"])
def test_new_lines_of_tasks_that_are_no_languages_have_no_signs(kind: Any) -> None:
    made = make_files(kind, 3000, 1, n_valid=50, n_test=300)
    train, test = ([made[f"{part}.{side}"] for side in ("src", "tgt")] for part in ("train", "test"))
    profile = learn(list(zip(*train, strict=True)))
    flagged = 0
    for (src, tgt), of_source in zip(zip(*test, strict=True), find_source_signs(test[0], profile, str), strict=True):
        ids = [[5] * len(side.split()) for side in (src, tgt)]
        found = find_signs(src, tgt, finished=True, source_ids=ids[:1], profile=profile)
        flagged += bool([*found, *of_source, *find_length_signs(ids[:1], ids[1:], profile, lambda _, src=src: [src])])
    assert flagged <= 6  # 2 %, where each of six limits lets a thousandth through, and 3,000 pairs say little of that


def test_too_few_pairs_teach_nothing() -> None:
    assert learn([("a b", "c d")] * (MIN_PAIRS - 1)) == TrainingProfile()
    assert source_counts(["Привет, как дела?"], TrainingProfile()) == Counter()
    assert find_length_signs([[5] * 100], [[5]], TrainingProfile(), undecoded) == []


def test_a_run_has_its_profile(trained: Path, workshop: Any, tmp_path: Path) -> None:
    run = open_run(trained)
    profile = run.training_profile
    assert profile is not None and profile.known >= set("0123456789 ") and profile.scripts == []
    loaded = workshop.random_run(trained, "transformer")
    pipeline = TranslationPipeline([loaded], LocalSearch([loaded.model], loaded.device))
    unlike, usual, blank = pipeline.stream(["Ein Hund", "1 2 3 4 5", " "])
    assert {"unlike", "unknown"} <= set(unlike.signs)
    assert not {"unlike", "unknown", "length"} & set(usual.signs) and blank.signs == []
    pipeline.profile = TrainingProfile()
    (plain,) = pipeline.stream(["Ein Hund"])
    assert not {"unlike", "short", "long", "length"} & set(plain.signs)


@pytest.mark.parametrize(
    "damage", [{"trigrams": ["AAAA", "AAAA"]}, {"trigrams": ["ß"]}, {"repeats": 1}, {"copied": float("nan")}, {"x": 1}]
)
def test_a_damaged_profile_is_refused(trained: Path, damage: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(trained)
    content = json.dumps({**json.loads(run.files.read(TRAINING_PROFILE)), **damage}).encode()
    monkeypatch.setattr(type(run.files), "read", lambda self, name: content)
    with pytest.raises(RunError, match="invalid profile of the training pairs"):
        _ = run.training_profile


def test_an_older_checkpoint_has_no_profile(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(trained)
    monkeypatch.delitem(run.files.manifest.files, TRAINING_PROFILE)
    assert run.training_profile is None
    assert SIZE == 1 << 15 and RunFolder(trained).checkpoint()[0].manifest.files[TRAINING_PROFILE].size < 1 << 17
