"""Document classifiers learn what hangs on one sentence, and say which; and what their runs refuse."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from attnkit.data.config import DocumentsConfig
from attnkit.data.labels import Labels
from attnkit.engine.examples import ClassificationEvaluation
from attnkit.engine.loading import load_model
from attnkit.engine.predict import PredictRequest
from attnkit.engine.resolve import resolve
from attnkit.engine.task import EvaluationCancelled, task_of
from attnkit.engine.trainer import TrainingStarted, TrainRequest, train
from attnkit.errors import AttnkitError, DataError, RunError, UsageError
from attnkit.tasks.text_classification.data import DocumentEncoder
from attnkit.tasks.text_classification.predict import HanPredictor
from attnkit.tasks.text_classification.task import TASK, document_logits
from attnkit.text.config import VocabularyConfig
from attnkit.text.vocabulary import train_vocabulary

STEADY = ["precision=float32", "device=cpu", "threads=1", "evaluation.n_samples=0"]
FILLERS = [
    "we",
    "went",
    "there",
    "by",
    "train",
    "and",
    "it",
    "was",
    "raining",
    "when",
    "they",
    "came",
    "back",
    "with",
    "some",
    "bread",
]
TELLING = {"good": ["superb", "witty", "lovely"], "bad": ["awful", "dull", "poor"], "mixed": ["uneven", "patchy"]}


def classifier_of(run: Path) -> HanPredictor:
    return HanPredictor(load_model(run, "text-classification", device="cpu"), PredictRequest(run, []), print)


def review(drawn: random.Random) -> tuple[str, str, int, str]:
    """Return a document, its label, the place of the sentence that tells, and the word in it."""
    label = drawn.choice(sorted(TELLING))
    sentences = [drawn.choices(FILLERS, k=drawn.randint(3, 7)) for _ in range(drawn.randint(3, 6))]
    place, word = drawn.randrange(len(sentences)), drawn.choice(TELLING[label])
    sentences[place][drawn.randrange(len(sentences[place]))] = word
    return " ".join(" ".join(words) + "." for words in sentences), label, place, word


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reviews")
    drawn = random.Random(1)
    for name, n in (("train", 600), ("valid", 80)):
        rows = [review(drawn) for _ in range(n)]
        (folder / f"{name}.tsv").write_text("".join(f"{text}\t{label}\n" for text, label, _, _ in rows))
    flags = {
        "task": "text-classification",
        "data.files": [str(folder / "train.tsv")],
        "data.valid_files": [str(folder / "valid.tsv")],
    }
    sizes = [f"model.{name}=24" for name in ("d_model", "d_word", "d_sentence", "d_attention")]
    sets = [*STEADY, *sizes, "limits.max_epochs=6", "optimization.batch_tokens=500", "optimization.learning_rate=1e-2"]
    config = resolve(flags, sets=[*sets, "evaluation.every_epochs=6"], preset_name="tiny").config
    done = list(train(TrainRequest(config, folder / "run")))[-1]
    assert done.metrics["accuracy"] > 97 and done.metrics["macro_f1"] > 97
    return folder / "run"


def test_it_finds_the_label_the_sentence_and_the_word(taught: Path) -> None:
    drawn = random.Random(2)
    rows = [review(drawn) for _ in range(100)]
    found = HanPredictor(
        load_model(taught, "text-classification", device="cpu"), PredictRequest(taught, []), print
    ).classify([text for text, *_ in rows])
    right = sentence = word = 0
    for labeled, (_, label, place, telling) in zip(found, rows, strict=True):
        right += labeled.label == label
        sentence += max(range(len(labeled.sentence_weights)), key=labeled.sentence_weights.__getitem__) == place
        weights = labeled.word_weights[place]
        pieces = labeled.sentences[place]
        word += pieces[max(range(len(weights)), key=weights.__getitem__)].strip("▁") == telling
    # By chance a sentence would be found in a quarter of the documents, a word in a sixth.
    assert (right, sentence, word) >= (95, 90, 90) and min(right, sentence, word) >= 90


def test_a_result_depends_on_its_own_document_alone(taught: Path) -> None:
    classifier = HanPredictor(
        load_model(taught, "text-classification", device="cpu"), PredictRequest(taught, []), print
    )
    drawn = random.Random(3)
    texts = [*(review(drawn)[0] for _ in range(9)), "", "  ", "zzz qqq. unheard-of!", "a. " * 400]
    whole = classifier.classify(texts)
    assert len(whole) == len(texts)
    for text, labeled in zip(texts, whole, strict=True):
        alone = classifier.classify([text])[0]
        assert alone.label == labeled.label and alone.sentences == labeled.sentences
        assert alone.probabilities == pytest.approx(labeled.probabilities, abs=1e-5)
        assert sum(labeled.probabilities) == pytest.approx(1)
        assert labeled.sentence_weights == pytest.approx(alone.sentence_weights, abs=1e-5)
        assert len(labeled.sentence_weights) == len(labeled.sentences) == len(labeled.word_weights)
        assert all(len(a) == len(b) for a, b in zip(labeled.sentences, labeled.word_weights, strict=True))
        assert all(sum(weights) == pytest.approx(1, abs=1e-5) for weights in labeled.word_weights)
        if labeled.sentences:
            assert sum(labeled.sentence_weights) == pytest.approx(1, abs=1e-5)
    assert whole[9].sentences == [] == whole[10].sentences
    assert len(whole[-1].sentences) == 100, "what is beyond data.max_sentences is not read"


CHOICES = {
    "deep, local": ["model.alignment=deep", "model.distribution=local"],
    "kernel, normalize": ["model.alignment=kernel", "model.distribution=normalize"],
    "location, sparsemax": ["model.alignment=location", "model.distribution=sparsemax"],
}


@pytest.mark.parametrize("case", CHOICES)
def test_other_functions_train_and_classify(tmp_path: Path, case: str) -> None:
    """And are read back as they were: what is found is a document's own, whatever is asked beside it."""
    drawn = random.Random(4)
    rows = [review(drawn) for _ in range(60)]
    (tmp_path / "a.tsv").write_text("".join(f"{text}\t{label}\n" for text, label, _, _ in rows))
    sizes = [f"model.{name}=8" for name in ("d_model", "d_word", "d_sentence", "d_attention")]
    sets = [*STEADY, *sizes, *CHOICES[case], "limits.max_steps=3", "optimization.batch_tokens=500"]
    config = resolve(
        {"task": "text-classification", "data.files": [str(tmp_path / "a.tsv")]}, sets=sets, preset_name="tiny"
    ).config
    list(train(TrainRequest(config, tmp_path / "run")))
    opened = load_model(tmp_path / "run", "text-classification", device="cpu")
    assert f"{opened.config.model.alignment}, {opened.config.model.distribution}" == case
    classifier, texts = classifier_of(opened.path), [text for text, *_ in rows[:5]]
    for text, labeled in zip(texts, classifier.classify(texts), strict=True):
        alone = classifier.classify([text])[0]
        assert labeled.sentence_weights == pytest.approx(alone.sentence_weights, abs=1e-5)
        assert any(labeled.sentence_weights) and all(any(weights) for weights in labeled.word_weights)


def test_functions_that_do_not_fit_are_told_before_training() -> None:
    def refuse(*sets: str) -> list[str]:
        with pytest.raises(UsageError) as caught:
            resolve({"task": "text-classification", "data.files": ["a.tsv"]}, sets=sets, preset_name="tiny")
        return caught.value.lines()

    lines = refuse("model.alignment=aditive")
    assert lines[0] == 'error: model.alignment cannot be "aditive"' and lines[2].endswith("did you mean 'additive'?")
    assert "distribution normalize: its scores may be negative" in refuse("model.distribution=normalize")[0]
    located = ("model.alignment=location", "model.attention_options.max_source=150")
    lines = refuse(*located, "data.max_length=200")
    assert lines[0].startswith(
        "error: location attention needs model.attention_options.max_source of 200 for sentences"
    )
    assert "(--set model.attention_options.max_source)" in lines[1]
    assert "of 300 for documents of data.max_sentences=300 sentences" in refuse(*located, "data.max_sentences=300")[0]
    resolve({"task": "text-classification", "data.files": ["a.tsv"]}, sets=located, preset_name="tiny")


def test_long_sentences_go_on_and_long_documents_end() -> None:
    tokenizer = train_vocabulary(["a b c d e"] * 3, VocabularyConfig(kind="word", min_frequency=1))
    reader = DocumentEncoder(tokenizer, DocumentsConfig(files=("x",), max_length=2, max_sentences=3))
    a, b, c, d, e = tokenizer.encode(["a b c d e"])[0]
    assert reader.encode(["a b c d e. x", "a. b. c. d", ""])[0][:2] == [[a, b], [c, d]]
    assert len(reader.encode(["a b c d e"])[0]) == 3 and reader.encode([" "]) == [[]]
    # The first two of the first three documents; as many as are read is not too many.
    assert reader.counts["cut_short"] == 2
    assert reader.encode(["a ||| b ||| c ||| d", "a ||| b ||| c"]) == [[[a], [b], [c]]] * 2
    assert reader.counts["cut_short"] == 3
    assert e


def test_documents_that_are_cut_short_are_counted(tmp_path: Path) -> None:
    for name, lengths in (("a", (1, 2, 3, 4)), ("b", (2, 3, 1))):
        rows = [f"{'x y. ' * n}w{i}\t{'good' if i % 2 else 'bad'}\n" for i, n in enumerate(lengths * 3)]
        (tmp_path / f"{name}.tsv").write_text("".join(rows))
    flags = {
        "task": "text-classification",
        "data.files": [str(tmp_path / "a.tsv")],
        "data.valid_files": [str(tmp_path / "b.tsv")],
    }
    config = resolve(flags, sets=[*STEADY, "data.max_sentences=3", "limits.max_steps=1"], preset_name="tiny").config
    begun = next(event for event in train(TrainRequest(config, tmp_path / "run")) if isinstance(event, TrainingStarted))
    assert (begun.counts["cut_short"], begun.counts["cut_short_in_validation"]) == (6, 3)


def test_the_evaluation_counts_as_the_classifier_does(taught: Path) -> None:
    from attnkit.metrics.labels import label_scores

    opened = load_model(taught, "text-classification", device="cpu")
    prepared = TASK.load_data(opened.config, taught / "data")
    found = ClassificationEvaluation(prepared, opened.device, 2, None, document_logits)(opened.model)
    lines = [line.split("\t") for line in (taught.parent / "valid.tsv").read_text().splitlines()]
    labels = [labeled.label for labeled in classifier_of(opened.path).classify([text for text, _ in lines])]
    scores = label_scores(labels, [label for _, label in lines])
    assert found is not None
    assert (found["accuracy"], found["macro_f1"]) == (scores.accuracy, scores.macro_f1)


def test_a_stop_gives_an_evaluation_up(taught: Path) -> None:
    opened = load_model(taught, "text-classification", device="cpu")
    prepared = TASK.load_data(opened.config, taught / "data")
    with pytest.raises(EvaluationCancelled):
        ClassificationEvaluation(prepared, opened.device, 2, lambda: True, document_logits)(opened.model)


HOSTILE: dict[str, tuple[str, type[AttnkitError], str]] = {
    "empty": ("", DataError, "no documents"),
    "one label": ("a b\tx\nc d\tx\n", DataError, "every document has the label 'x'"),
    "one column": ("a b\tx\nc d\n", DataError, "1 column, expected two"),
    "three columns": ("a b\tx\nc\td\tx\n", DataError, "3 columns, expected two"),
    "no label": ("a b\tx\nc d\t\n", DataError, "the label is missing"),
    "blank documents": ("\tx\n \ty\n" * 20, DataError, "no document left for validation"),
    "not UTF-8": ("a b\tx\nc \udcff\ty\n", DataError, "not UTF-8"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_labeled_files_that_cannot_be_trained_on(tmp_path: Path, case: str) -> None:
    text, error, said = HOSTILE[case]
    (tmp_path / "a.tsv").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(error, match=said):
        config = resolve(
            {"task": "text-classification", "data.files": [str(tmp_path / "a.tsv")]}, sets=STEADY, preset_name="tiny"
        )
        list(train(TrainRequest(config.config, tmp_path / "run")))


def test_a_dry_run_refuses_held_out_documents_that_are_blank(tmp_path: Path) -> None:
    """As training does, without a second read of the file."""
    (tmp_path / "a.tsv").write_text("\tx\n \ty\n" * 20)
    flags = {"task": "text-classification", "data.files": [str(tmp_path / "a.tsv")]}
    config = resolve(flags, sets=STEADY, preset_name="tiny").config
    with pytest.raises(DataError, match="no document left for validation"):
        task_of(config).dry_run(config)


def test_an_unknown_label_to_validate_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tx\nb\ty\n")
    (tmp_path / "b.tsv").write_text("a\tz\n")
    flags = {
        "task": "text-classification",
        "data.files": [str(tmp_path / "a.tsv")],
        "data.valid_files": [str(tmp_path / "b.tsv")],
    }
    with pytest.raises(DataError, match="label 'z' does not occur"):
        list(train(TrainRequest(resolve(flags, sets=STEADY, preset_name="tiny").config, tmp_path / "run")))


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b'"good"', b'"bad"'),
        lambda raw: b'{"format": "attnkit labels", "labels": ["x"]}',
        lambda raw: b"[]",
        lambda raw: b'{"format": "attnkit labels", "labels": ["x", ""]}',
        lambda raw: raw.replace(b"good", b"go\\nod"),
    ],
    ids=["twice", "one", "a list", "an empty one", "two lines"],
)
def test_damaged_labels_are_refused(change: Callable[[bytes], bytes]) -> None:
    raw = Labels(labels=["bad", "good"]).to_bytes()
    assert Labels.parse(raw, "here").labels == ["bad", "good"]
    with pytest.raises(RunError, match="invalid"):
        Labels.parse(change(raw), "here")


def test_a_run_with_other_labels_cannot_be_begun_from_it(taught: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a b\tx\nc d\ty\n" * 20)
    sizes = [f"model.{name}=24" for name in ("d_model", "d_word", "d_sentence", "d_attention")]
    flags = {"task": "text-classification", "data.files": [str(tmp_path / "a.tsv")]}
    config = resolve(flags, sets=[*STEADY, *sizes], preset_name="tiny").config
    with pytest.raises(DataError, match="unknown label"):
        list(train(TrainRequest(config, tmp_path / "run", init_from=taught)))
