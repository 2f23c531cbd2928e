"""Taggers learn places and persons; their scores are those of a count by hand; what they refuse."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from labeled import configure, tagged, write_tagged

from attnkit.cli._train import follow
from attnkit.data.prepared_dir import WarningEvent
from attnkit.data.windows import UNKNOWN
from attnkit.engine.events import ValidationFinished
from attnkit.engine.loading import load_model
from attnkit.engine.predict import PredictRequest
from attnkit.engine.task import EvaluationCancelled
from attnkit.engine.trainer import TrainingStarted, TrainRequest, train
from attnkit.errors import AttnkitError, DataError
from attnkit.models.bert import TokenTagger
from attnkit.progress import console
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.finetuning.predict_token_classification import TokenClassificationPredictor
from attnkit.tasks.finetuning.task import label_loss
from attnkit.tasks.finetuning.token_classification import TASK, tag_logits, word_rows
from attnkit.text.conll import label_scheme
from attnkit.training.records import EvaluationRecord

LEARNT = ("limits.max_epochs=4", "optimization.learning_rate=1e-2", "optimization.batch_tokens=300")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished run, opened, with its data."""
    folder = tmp_path_factory.mktemp("taught")
    files = [write_tagged(folder / f"{name}.conll", tagged(n, seed)) for name, n, seed in (("a", 200, 1), ("b", 40, 2))]
    config = configure("token-classification", files[0], files[1], *LEARNT, "evaluation.every_epochs=4")
    done = list(train(TrainRequest(config, folder / "run")))[-1]
    assert done.metrics["f1"] > 95
    opened = load_model(folder / "run", "token-classification", device="cpu")
    return opened, TASK.load_data(config, folder / "run" / "data"), done.metrics


def by_hand(sentences: list[list[tuple[str, str]]]) -> set[tuple[int, str, int, int]]:
    """Return the entities of sentences: number, type, first word, last word."""
    found = set()
    for number, words in enumerate(sentences):
        for i, (_, tag) in enumerate(words):
            if tag.startswith("B-"):
                end = i
                while end + 1 < len(words) and words[end + 1][1] == "I-" + tag[2:]:
                    end += 1
                found.add((number, tag[2:], i, end))
    return found


def test_scores_are_those_counted_by_hand(taught: Any, tmp_path: Path) -> None:
    opened, prepared, _ = taught
    torch.manual_seed(5)
    model = TokenTagger(opened.config.model, prepared.tokenizer.vocab_size, len(prepared.labels))
    model.load_state_dict(opened.model.state_dict())
    with torch.no_grad():
        model.output.weight.add_(torch.randn_like(model.output.weight), alpha=0.42)  # some are wrong now
    scores = TASK.evaluation(opened.config, prepared, opened.device, None)(model)
    sentences, n, right, nll = tagged(40, 2), 0, 0, 0.0
    guessed: list[list[tuple[str, str]]] = []
    for words in sentences:
        ids = [BOS_ID, *prepared.tokenizer.encode([" ".join(word for word, _ in words)])[0], EOS_ID]
        with torch.no_grad():
            logits = model.eval()(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))[0, 1:-1]
        before = "O"
        guessed.append([])
        for (word, tag), row in zip(words, logits, strict=True):
            found = prepared.labels[int(row.argmax())]
            right, n = right + (found == tag), n + 1
            if found.startswith("I-") and before[2:] != found[2:]:
                found = "B-" + found[2:]  # which begins an entity for conlleval
            guessed[-1].append((word, found))
            before = found
            nll -= float(row.log_softmax(-1)[prepared.labels.index(tag)])
    ours, theirs = by_hand(guessed), by_hand(sentences)
    both = len(ours & theirs)
    assert 0 < both < len(theirs) and len(ours) != len(theirs), "the test needs faults of both kinds"
    assert scores is not None
    expected = {
        "loss": nll / n,
        "accuracy": 100 * right / n,
        "precision": 100 * both / len(ours),
        "recall": 100 * both / len(theirs),
        "f1": 200 * both / (len(ours) + len(theirs)),
    }
    assert scores == pytest.approx(expected, rel=1e-5)


def test_what_is_kept_scores_as_training_said(taught: Any, capsys: pytest.CaptureFixture[str]) -> None:
    opened, prepared, told = taught
    assert list(told) == ["loss", "accuracy", "precision", "recall", "f1"], "the order in which they are shown"
    record = EvaluationRecord(1000, 1.0, {**dict.fromkeys(told, 100.0), "loss": 9.0}, True)
    with console.StatusLine() as status:
        follow(iter([ValidationFinished(record, [])]), status, lambda: None, lambda outcome: None)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("accuracy 100.0 %  P 100.0  R 100.0  F1 100.0 %  *") and len(line) <= 80
    evaluation = TASK.evaluation(opened.config, prepared, opened.device, None)
    assert evaluation(opened.model) == pytest.approx(dict(told))
    words, expected, found = evaluation.samples[0]
    assert words == " ".join(word for word, _ in tagged(40, 2)[0])
    assert expected == found and ("place: " in expected or "person: " in expected)


def test_a_stop_gives_an_evaluation_up(taught: Any) -> None:
    opened, prepared, _ = taught
    with pytest.raises(EvaluationCancelled):
        TASK.evaluation(opened.config, prepared, opened.device, lambda: True)(opened.model)


def test_sentences_longer_than_the_positions_are_tagged_to_the_last_word(taught: Any) -> None:
    opened, prepared, _ = taught
    sentences = [[pair for words in tagged(12, seed) for pair in words] for seed in (7, 8)]
    rows = word_rows(prepared.tokenizer, [[word for word, _ in words] for words in sentences], 40)
    assert len(rows) > 4
    found = TokenClassificationPredictor(opened, PredictRequest(opened.path, []), print).tag(
        [[word for word, _ in words] for words in sentences]
    )
    for one, words in zip(found, sentences, strict=True):
        assert len(one.tags) == len(one.probabilities) == len(words) > 38
        assert sum(name == tag for name, (_, tag) in zip(one.tags, words, strict=True)) > 0.9 * len(words)
    assert set(rows.batch(np.arange(len(rows))).labels.tolist()) == {UNKNOWN}


def test_class_weights_and_smoothing_are_those_of_a_sum_over_words() -> None:
    torch.manual_seed(1)
    config = configure("token-classification", Path("a"), None).model
    model = TokenTagger(config, 50, 3).double()
    from attnkit.data.windows import TagBatch

    ids = torch.randint(4, 50, (2, 6))
    batch = TagBatch(ids, torch.ones(2, 6, dtype=torch.bool), torch.tensor([1, 3, 8]), torch.tensor([2, 0, 2]))
    weights, smoothing = torch.tensor([0.5, 1.0, 3.0]), 0.1
    logits_of = partial(tag_logits, model)
    term = label_loss(logits_of, torch.device("cpu"), smoothing, weights)(batch)["nll"]
    logits = model(ids, batch.real).detach()
    total = plain = 0.0
    for row, column, tag in ((0, 1, 2), (0, 3, 0), (1, 2, 2)):
        log_probs = logits[row, column].log_softmax(-1)
        plain -= float(log_probs[tag])
        spread = sum(float(weights[k] * -log_probs[k]) for k in range(3)) / 3
        total += (1 - smoothing) * float(weights[tag] * -log_probs[tag]) + smoothing * spread
    assert float(term.total.detach()) == pytest.approx(total) and float(term.reported) == pytest.approx(plain)  # type: ignore[arg-type]
    alone = label_loss(logits_of, torch.device("cpu"))(batch)["nll"]
    assert float(alone.total.detach()) == pytest.approx(plain)
    assert float(F.cross_entropy(logits.flatten(0, 1)[batch.firsts], batch.labels, reduction="sum")) == pytest.approx(
        plain
    )


def begin(path: Path, text: str, *sets: str, valid: str | None = None) -> tuple[list[Any], Path]:
    """Prepare a run over a file; return what was said, and RUN."""
    (path / "a.conll").write_text(text)
    other = None
    if valid is not None:
        other = path / "b.conll"
        other.write_text(valid)
    said = []
    for event in train(
        TrainRequest(
            configure("token-classification", path / "a.conll", other, "limits.max_steps=1", *sets), path / "run"
        )
    ):
        said.append(event)
        if isinstance(event, TrainingStarted):
            break
    return said, path / "run"


SCHEMES = {
    "bio": (["B-x I-x O B-y", "B-x B-x O"], "bio", "O B-x I-x B-y I-y"),
    "iob1": (["I-x I-x O I-y", "I-x B-x O"], "bio", "O B-x I-x B-y I-y"),
    "bioes": (["B-x E-x O S-y", "S-x O"], "bioes", "O B-x I-x E-x S-x B-y I-y E-y S-y"),
    "bilou": (["B-x L-x O U-y", "U-x O"], "bilou", "O B-x I-x L-x U-x B-y I-y L-y U-y"),
    "types with hyphens": (["B-a-b I-a-b O"], "bio", "O B-a-b I-a-b"),
    "plain": (["DT NN VB", "NN O"], "plain", "DT NN O VB"),
}


@pytest.mark.parametrize("case", SCHEMES)
def test_tags_of_any_scheme(tmp_path: Path, case: str) -> None:
    lines, scheme, labels = SCHEMES[case]
    text = "\n".join("".join(f"w{i} {tag}\n" for i, tag in enumerate(line.split())) for line in lines * 3)
    _, run = begin(tmp_path, text, valid=text)
    prepared = TASK.load_data(configure("token-classification", tmp_path / "a.conll", None), run / "data")
    assert prepared.labels == labels.split() and label_scheme(prepared.labels) == scheme
    batch = prepared.train.batch(np.array([0]))
    written = {"iob1": "B-x I-x O B-y"}.get(case, lines[0]).split()
    assert [prepared.labels[tag] for tag in batch.labels.tolist()] == written
    assert prepared.valid_examples[0] == (tuple(f"w{i}" for i in range(len(written))), tuple(written))


def scored(tmp_path: Path, text: str, said: str) -> tuple[dict[str, float], list[Any]]:
    """Return the scores and samples of a model that says one tag of every word."""
    _, run = begin(tmp_path, text, valid=text)
    config = configure("token-classification", tmp_path / "a.conll", tmp_path / "b.conll")
    prepared = TASK.load_data(config, run / "data")
    labels = prepared.labels
    model = TokenTagger(config.model, prepared.tokenizer.vocab_size, len(labels))
    with torch.no_grad():
        model.output.bias[labels.index(said)] += 99
    evaluation = TASK.evaluation(config, prepared, torch.device("cpu"), None)
    scores = evaluation(model)
    assert scores is not None
    return dict(scores), evaluation.samples


def test_tags_without_entities_are_scored_by_words(tmp_path: Path) -> None:
    scores, _ = scored(tmp_path, "a DT\nb NN\n\nb NN\na DT\nb NN\n\n" * 3, "NN")
    assert [scores[name] for name in ("accuracy", "precision", "recall", "f1")] == [60] * 4


def test_first_tokens_carry_the_tags(tmp_path: Path) -> None:
    """Of words in several pieces each, in columns of which the middle one is nobody's concern."""
    text = "lowering VBG O\nlowered VBD B-x\nnewest JJ I-x\n\nslow JJ O\n\n" * 5
    sets = ("vocabulary.kind=char", "data.held_out=2")
    said, run = begin(tmp_path, text, *sets)
    config = configure("token-classification", tmp_path / "a.conll", None, *sets)
    prepared = TASK.load_data(config, run / "data")
    # One of ten is held out, and those that are like it are left out.
    begun = said[-1]
    assert begun.unit == "sentences" and begun.counts["held_out"] == 1 and begun.counts["repeats_of_held_out"] == 4
    labels, batch = prepared.labels, prepared.train.batch(np.array([0]))
    shown = [prepared.tokenizer.tokens([id])[0] for id in batch.ids.flatten()[batch.firsts].tolist()]
    found = list(zip(shown, [labels[tag] for tag in batch.labels.tolist()], strict=True))
    assert found in ([("l", "O"), ("l", "B-x"), ("n", "I-x")], [("s", "O")])
    assert batch.firsts.tolist() == ([1, 10, 18] if len(found) == 3 else [1])


def test_unheard_of_tags_are_told_and_count_as_missed(tmp_path: Path) -> None:
    said, run = begin(tmp_path, "a B-x\nb O\n\n" * 20, valid="a B-x\nc B-new\n\na B-x\nd O\n")
    told = [event.text for event in said if isinstance(event, WarningEvent)]
    assert any("tag 'B-new' does not occur" in text for text in told)
    prepared = TASK.load_data(
        configure("token-classification", tmp_path / "a.conll", tmp_path / "b.conll"), run / "data"
    )
    assert prepared.valid.batch(np.array([0])).labels.tolist() == [1, -1]
    model = TokenTagger(configure("token-classification", Path("a"), None).model, prepared.tokenizer.vocab_size, 3)
    with torch.no_grad():
        model.output.bias += torch.tensor([0.0, 99.0, 0.0])  # says B-x of every word
    scores = TASK.evaluation(configure("token-classification", Path("a"), None), prepared, torch.device("cpu"), None)(
        model
    )
    assert scores is not None
    assert (scores["precision"], scores["accuracy"]) == (50, 50)
    assert scores["recall"] == pytest.approx(200 / 3), "an entity that it cannot find is missed all the same"
    assert scores["loss"] == pytest.approx(33, rel=0.1), "of three words whose tag it knows, one is wrong by 99"


WRONG: dict[str, tuple[str, type[AttnkitError], str]] = {
    "empty": ("", DataError, "no sentences"),
    "blank": ("\n\n \n", DataError, "no sentences"),
    "no tags": ("one\ntwo\n", DataError, "this word has no tag"),
    "a column less": ("one x B-a\ntwo O\n", DataError, "this line has 2 columns, the first line 3"),
    "no entity": ("one O\ntwo O\n\nthree O\n", DataError, "every word has the tag 'O'"),
    "an odd tag": ("one B-a\ntwo I-a\n\nthree O\nfour 0\n", DataError, "the tag '0' is not a BIO entity tag"),
    "white space": ("one\tO\ntwo\tB-big city\n", DataError, "contains white space"),
    "one sentence": ("one B-a\ntwo O\n", DataError, "1 row: too few for training and validation"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_teach_nothing_are_refused(tmp_path: Path, case: str) -> None:
    text, kind, what = WRONG[case]
    with pytest.raises(kind, match=what) as caught:
        begin(tmp_path, text)
    assert str(caught.value.where).startswith(str(tmp_path / "a.conll")) and not (tmp_path / "run" / "data").exists()


def warnings(said: list[Any]) -> list[str]:
    return [event.text for event in said if isinstance(event, WarningEvent)]


def test_one_odd_tag_among_many_is_named_with_its_line(tmp_path: Path) -> None:
    text = "a B-PER\nb I-PER\nc O\n\n" * 1000
    with pytest.raises(DataError, match="the tag '0' is not a BIO entity tag, but most tags are") as caught:
        begin(tmp_path, text + "d O\ne 0\n", valid=text)
    assert caught.value.where == f"{tmp_path / 'a.conll'}:4002" and "B-PER" in (caught.value.help or "")
    with pytest.raises(DataError, match="the tag '0'") as caught:
        begin(tmp_path, text, valid="a B-PER\n\nd O\ne 0\n")
    assert caught.value.where == f"{tmp_path / 'b.conll'}:4"


def test_it_is_told_where_f1_is_accuracy(tmp_path: Path) -> None:
    for name, text, expected in (
        ("speech", "a DT\nb NN\nc O\n\n" * 10, ["tags such as 'DT', 'NN' are not in BIO format (e.g. 'B-PER'); F1 is"]),
        ("entities", "a B-x\nb O\n\n" * 10, []),
        ("bilou", "a U-x\nb O\n\nc B-y\nd L-y\n\n" * 10, []),
    ):
        (tmp_path / name).mkdir()
        told = [text for text in warnings(begin(tmp_path / name, text, valid=text)[0]) if "unknown" not in text]
        assert len(told) == len(expected) and all(map(str.startswith, told, expected)), told


def test_tags_out_of_place_are_read_as_conlleval_does_and_told_once(tmp_path: Path) -> None:
    text = "one B-a\ntwo I-a\n\nthree O\nfour I-b\n\n"
    said, run = begin(tmp_path, text * 2, valid=text + "one B-a\nfour I-b\n")
    assert [told for told in warnings(said) if "BIO" in told] == [
        f"4 tags do not follow BIO and are interpreted as by conlleval; the first one: {tmp_path / 'a.conll'}:5: "
        "'I-b' as 'B-b'"
    ]
    prepared = TASK.load_data(
        configure("token-classification", tmp_path / "a.conll", tmp_path / "b.conll"), run / "data"
    )
    labels = prepared.labels
    assert labels == ["O", "B-a", "I-a", "B-b", "I-b"]
    assert [tags for _, tags in prepared.valid_examples] == [("B-a", "I-a"), ("O", "B-b"), ("B-a", "B-b")]
    assert [labels[tag] for tag in prepared.train.batch(np.array([1])).labels.tolist()] == ["O", "B-b"]


def test_a_slip_in_the_development_file_alone_is_told(tmp_path: Path) -> None:
    said, _ = begin(tmp_path, "a B-x\nb O\n\n" * 9, valid="b O\na I-x\n")
    assert [told for told in warnings(said) if "BIO" in told] == [
        f"1 tag does not follow BIO and is interpreted as by conlleval: {tmp_path / 'b.conll'}:2: 'I-x' as 'B-x'"
    ]


def test_entities_in_bilou_are_scored_as_such(tmp_path: Path) -> None:
    scores, samples = scored(tmp_path, "a B-x\nb L-x\nc O\nd U-x\n\n" * 3, "U-x")
    # Four found, of which one is right; two expected.
    assert [scores[name] for name in ("accuracy", "precision", "recall")] == [25, 25, 50]
    assert samples[0] == ("a b c d", "x: a b; x: d", "x: a; x: b; x: c; x: d")


def test_a_development_file_without_sentences_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sentence left for validation") as caught:
        begin(tmp_path, "a B-x\nb O\n\n" * 3, valid="\n")
    assert caught.value.where == str(tmp_path / "b.conll")
