"""Several directions in one translator: tags, scores per direction, held-out lines, and choosing a language."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

import attnkit
from attnkit.analysis.compare_translators import compare_translators
from attnkit.decoding.hypothesis import Hypothesis
from attnkit.engine.resolve import resolve
from attnkit.errors import RunError, UsageError
from attnkit.formats.documents import parse_line
from attnkit.formats.passages import render
from attnkit.protocols import UNK_ID
from attnkit.tasks.translation.data import open_prepared
from attnkit.tasks.translation.directions import LanguagePair
from attnkit.tasks.translation.documents import DocumentTranslator
from attnkit.tasks.translation.evaluate import scores_by_direction
from attnkit.tasks.translation.parallel_data import ParallelData
from attnkit.tasks.translation.shortlist import UnknownReplacer
from attnkit.tasks.translation.synthetic_config import SyntheticConfig
from attnkit.tasks.translation.synthetic_pairs import SyntheticRequest, make_pairs
from attnkit.tasks.translation.translator import load_translator
from attnkit.tasks.translation.word_links import word_anchors
from attnkit.text.config import VocabularyConfig
from attnkit.text.tags import tag_ids, with_tag
from attnkit.text.vocabulary import train_vocabulary


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def configure(workshop: Any, **changes: Any) -> Any:
    flags: dict[str, Any] = {
        f"data.{prefix}{side}": [str(workshop.file(f"{part}.{side}"))]
        for prefix, part in (("", "train"), ("valid_", "valid"))
        for side in ("src", "tgt")
    }
    flags |= {"data.directions": ["up:down"], "data.bidirectional": True, "model.kind": "transformer"}
    settings = {"vocabulary.kind": "word", "vocabulary.min_frequency": 1, "limits__max_steps": 20, **changes}
    return resolve(flags, sets=workshop.settings("transformer", **settings), preset_name="tiny").config


@pytest.fixture(scope="module")
def both(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two directions, whose tokens are digits."""
    folder = tmp_path_factory.mktemp("both") / "run"
    workshop.train(configure(workshop), folder)
    return folder


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char"])
def test_ids_of_a_tag_are_those_of_the_tagged_text(kind: Any) -> None:
    text = ["the quick brown fox", " two spaces  here", "x", "naïve 犬"] * 9
    tokenizer = train_vocabulary(text, VocabularyConfig(kind=kind, size=600, min_frequency=1, symbols=("<2de>",)))
    for line in text[:4]:
        tagged, plain = tokenizer.encode([with_tag(line, "<2de>"), line])
        assert tag_ids(tokenizer, "<2de>") + plain == tagged
        assert tokenizer.token_id("<2de>") in tagged
    assert tag_ids(tokenizer, "") == []


def test_sources_are_encoded_behind_their_tags(both: Path, workshop: Any) -> None:
    data = open_prepared(both / "data")
    tokenizer, n = data.vocabularies.src, len(lines_of(workshop.file("train.src")))
    assert data.pairs.corpora == (n, n)
    down, up = (tokenizer.token_id(f"<2{name}>") for name in ("down", "up"))
    assert down is not None and up is not None
    sources = lines_of(workshop.file("train.src")), lines_of(workshop.file("train.tgt"))
    for corpus, (tag, texts) in enumerate(zip((down, up), sources, strict=True)):
        for row in (0, 7, n - 1):
            ids = data.pairs.src[corpus * n + row].tolist()
            assert ids == [tag, *tokenizer.encode([texts[row]])[0]]
    assert data.pairs.tgt[0].tolist() == data.pairs.src[n].tolist()[1:], "the reversed pair has the sides exchanged"
    assert data.valid_directions == ["up:down"] * 8 + ["down:up"] * 8
    assert data.valid_src[:8] == data.valid_tgt[8:], "validation text has no tags"


def test_scores_are_per_direction_and_their_mean(both: Path) -> None:
    rows = [json.loads(line) for line in (both / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["kind"] == "evaluation"][-1]
    assert last["bleu"] == pytest.approx((last["bleu_up_down"] + last["bleu_down_up"]) / 2)
    hyps, refs = ["a b c d", "x y z w", "a b c e", "x y"], ["a b c d", "x y z v", "a b c d", "x y z w"]
    found = scores_by_direction(hyps, refs, ["p:q", "q:p", "p:q", "q:p"])
    assert list(found) == ["bleu", "bleu_p_q", "bleu_q_p", "chrf"]
    for name, rows_of in (("bleu_p_q", (0, 2)), ("bleu_q_p", (1, 3))):
        own = sacrebleu.corpus_bleu([hyps[i] for i in rows_of], [[refs[i] for i in rows_of]]).score
        assert found[name] == pytest.approx(own)
    assert list(scores_by_direction(hyps, refs, [""] * 4)) == ["bleu", "chrf"]
    assert scores_by_direction(hyps, refs, [""] * 4)["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hyps, [refs]).score)


def test_a_language_is_chosen_for_each_call(both: Path, workshop: Any) -> None:
    lines = lines_of(workshop.file("test.src"))
    translator = attnkit.Translator.load(both, device="cpu", threads=1)
    with pytest.raises(UsageError, match="no target language is chosen; this run has down, up"):
        translator.translate(lines)
    with pytest.raises(UsageError, match="unknown target language 'fr'"):
        translator.translate(lines, tgt_lang="fr")
    down, up = (
        [(one.text, one.log_prob) for one in translator.translate(lines, tgt_lang=name)] for name in ("down", "up")
    )
    assert down != up
    set_once = attnkit.load(both, device="cpu", threads=1, tgt_lang="up")
    assert isinstance(set_once, attnkit.Translator)
    assert [(one.text, one.log_prob) for one in set_once.translate(lines)] == up
    scores = set_once.score(lines, [text for text, _ in up])
    for score, (_, log_prob) in zip(scores, up, strict=True):  # translations are cut here, so they have no end
        assert sum(score.log_probs[0][:-1]) == pytest.approx(log_prob, abs=1e-3)


def test_a_source_language_is_checked_and_changes_nothing(both: Path, workshop: Any, tmp_path: Path) -> None:
    lines, translator = lines_of(workshop.file("test.src"))[:9], attnkit.Translator.load(both, device="cpu", threads=1)
    usual = [one.text for one in translator.translate(lines, tgt_lang="down")]
    assert [one.text for one in translator.translate(lines, src_lang="up", tgt_lang="down")] == usual
    with pytest.raises(UsageError, match="unknown source language 'fr'; this run has up, down") as caught:
        translator.translate(lines, src_lang="fr", tgt_lang="down")
    assert (caught.value.where, caught.value.help) == ("--src-lang", "add --src-lang up")
    text = workshop.file("test.src")
    with pytest.raises(UsageError, match="unknown source language 'fr'"):
        attnkit.distill(both, text, tmp_path / "out", src_lang="fr", tgt_lang="down", device="cpu")
    with pytest.raises(UsageError, match="unknown source language 'fr'"):
        attnkit.compare([both, both], [(text, workshop.file("test.tgt"))], src_lang="fr", tgt_lang="down")


def test_torch_and_compiled_loops_read_the_tag_alike(both: Path, workshop: Any) -> None:
    lines = lines_of(workshop.file("test.src"))[:20]
    texts = [
        attnkit.Translator.load(both, device="cpu", threads=1, engine=engine, tgt_lang="down").translate_texts(lines)
        for engine in ("compiled", "torch")
    ]
    assert texts[0] == texts[1]


def test_attention_to_the_tag_is_to_no_word(both: Path) -> None:
    translator = load_translator([both], device="cpu", threads=1)
    translator.set_languages(LanguagePair(tgt="down"))
    n_tag = len(translator.direction.tag)
    (found,) = translator.stream(["1 2 3"], record=True)
    ids = translator.tgt_tokenizer.encode(["7 8 9"])[0]
    weights = np.full((3, n_tag + 4), 0.1, np.float32)
    weights[:, :n_tag], weights[[0, 1, 2], [n_tag + 2, n_tag, n_tag + 1]] = 0.9, 0.5  # the tag has most attention
    output = replace(found.outputs[0], text="7 8 9", ids=[ids], attention=[weights.tolist()])
    anchors = word_anchors(replace(found, outputs=[output]), translator.tgt_tokenizer)
    assert [place for _, place in anchors] == [4, 0, 2]
    pieces = parse_line("1 <b>2</b> {x}")
    assert render(DocumentTranslator(translator).translate(pieces)).count("<b>") == 1
    translator.replacer = UnknownReplacer(None, translator.src_tokenizer, translator.tgt_tokenizer)
    (parts,) = translator.segment(["1 2 3"], None, 0)
    unknown = Hypothesis([UNK_ID] * 3, 0.0, 0.0, weights, finished=True)
    assert translator.join("1 2 3", parts, [[unknown]], translator.search).outputs[0].text == "3 1 2"


def test_a_run_of_one_direction_has_no_language_to_choose(trained: Path) -> None:
    with pytest.raises(UsageError, match="one target language, which has no tag"):
        attnkit.Translator.load(trained, device="cpu", tgt_lang="de")
    with pytest.raises(UsageError, match="one target language"):
        attnkit.Translator.load(trained, device="cpu").translate(["1 2"], tgt_lang="de")


def test_both_directions_hold_out_the_same_lines(workshop: Any) -> None:
    config = configure(workshop).data.model_copy(
        update={"valid_src": None, "valid_tgt": None, "valid_directions": None, "held_out": 100}
    )
    corpora = ParallelData(config)
    n = len(corpora.valid) // 2
    assert n == 8 and [(tgt, src) for src, tgt in corpora.valid[:n]] == corpora.valid[n:]
    assert corpora.valid_directions == ["up:down"] * n + ["down:up"] * n
    assert not {*corpora.valid} & {*corpora.pairs()}
    held = {text for pair in corpora.valid for text in pair}
    assert not held & {src for src, _ in corpora.pairs()}


def test_one_run_back_translates_and_filters_both_ways(both: Path, workshop: Any, tmp_path: Path) -> None:
    config = SyntheticConfig(keep_flagged=True, min_round_trip=0.0, min_forward_log_prob=-1000.0)
    request = SyntheticRequest(
        both, workshop.file("test.tgt"), tmp_path / "out", config, {"max_length": 8}, is_back=True, forward=both,
        tgt_lang="up", text_lang="down", device="cpu", threads=1,
    )  # fmt: skip
    report = make_pairs(request)
    assert report.kept > 30
    translator = attnkit.Translator.load(both, device="cpu", threads=1, tgt_lang="up")
    lines = lines_of(workshop.file("test.tgt"))
    expected = [text for (text,) in translator.translate_texts(lines, max_length=8) if text]
    assert lines_of(tmp_path / "out" / "pairs.src") == expected
    settings = {"keep_flagged": True, "min_round_trip": 0.0, "min_forward_log_prob": -1000.0}
    attnkit.back_translate(
        both, workshop.file("test.tgt"), tmp_path / "called", forward=both, settings=settings, tgt_lang="up",
        mono_lang="down", device="cpu", threads=1, max_length=8, quiet=True,
    )  # fmt: skip
    for name in ("pairs.src", "pairs.tgt"):
        assert lines_of(tmp_path / "called" / name) == [
            line if name == "pairs.tgt" else f"<bt> {line}" for line in lines_of(tmp_path / "out" / name)
        ]
    options = {"tgt_lang": "down", "device": "cpu", "threads": 1, "max_length": 8, "quiet": True}
    attnkit.distill(both, workshop.file("test.src"), tmp_path / "student", settings={"keep_flagged": True}, **options)
    assert lines_of(tmp_path / "student" / "pairs.tgt")


def test_back_translated_text_has_one_direction(workshop: Any, tmp_path: Path) -> None:
    (tmp_path / "bt.src").write_text("<bt> 1 2\n<bt> 3 4\n")
    (tmp_path / "bt.tgt").write_text("2 1\n4 3\n")
    config = configure(workshop).data
    update = {"src": (str(tmp_path / "bt.src"),), "tgt": (str(tmp_path / "bt.tgt"),)}
    with pytest.raises(UsageError, match="has one direction, not two"):
        ParallelData(config.model_copy(update=update))


def test_a_vocabulary_without_the_tags_is_refused(workshop: Any, tmp_path: Path) -> None:
    tokenizer = train_vocabulary([workshop.file("train.src")], VocabularyConfig(kind="char", size=300))
    (tmp_path / "vocab.json").write_text(tokenizer.to_json())
    config = configure(workshop).model_copy(update={"vocabulary_files": (str(tmp_path / "vocab.json"),)})
    with pytest.raises(UsageError, match="lacks <2down>, the tag of a target language"):
        workshop.train(config, tmp_path / "run")


def test_two_runs_are_compared_in_one_language(both: Path, trained: Path, workshop: Any) -> None:
    tests = [(workshop.file("test.src"), workshop.file("test.tgt"))]
    with pytest.raises(UsageError, match="no target language is chosen"):
        list(compare_translators([trained, both], tests))
    (one,) = compare_translators([trained, both], tests, languages=LanguagePair(tgt="down"))
    translator = load_translator([both], device="cpu")
    translator.set_languages(LanguagePair(tgt="down"))
    texts = translator.translate(workshop.file("test.src").read_text().splitlines())
    bleu = sacrebleu.corpus_bleu(texts, [workshop.file("test.tgt").read_text().splitlines()]).score
    assert one.scores[0].system == pytest.approx(bleu)
    with pytest.raises(UsageError, match="has no tag"):
        list(compare_translators([trained, trained], tests, languages=LanguagePair(tgt="down")))


def test_runs_of_other_languages_are_no_ensemble(both: Path, trained: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(both, tmp_path / "other"))
    attnkit.Translator.load(both, other, device="cpu", tgt_lang="up")
    with pytest.raises(RunError, match="different target languages"):
        attnkit.Translator.load(both, trained, device="cpu", tgt_lang="up")


def test_a_resumed_run_has_the_same_scores_and_weights(workshop: Any, both: Path, tmp_path: Path) -> None:
    workshop.train(configure(workshop), tmp_path / "run", stops=[9])
    for name in ("checkpoints/step-20/model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (both / name).read_bytes(), name


def test_weights_that_know_tags_are_not_trained_without(both: Path, workshop: Any, tmp_path: Path) -> None:
    config = configure(workshop, limits__max_steps=2)
    plain = config.model_copy(
        update={
            "data": config.data.model_copy(
                update={"directions": None, "valid_directions": None, "bidirectional": False}
            )
        }
    )
    with pytest.raises(UsageError, match="was trained in named directions"):
        workshop.train(plain, tmp_path / "plain", init_from=both)
    one = config.model_copy(update={"data": config.data.model_copy(update={"bidirectional": False})})
    workshop.train(one, tmp_path / "one", init_from=both)
    translator = attnkit.Translator.load(tmp_path / "one", device="cpu", threads=1)
    lines = lines_of(workshop.file("test.src"))
    assert translator.translate_texts(lines) == translator.translate_texts(lines), "the only language needs no choice"
    with pytest.raises(UsageError, match="this run has down"):
        translator.translate(lines, tgt_lang="up")
