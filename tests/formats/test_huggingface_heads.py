"""What was fine-tuned in transformers is a run that predicts: the same logits, the same labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")  # which needs Python 3.11

import transformers
from test_huggingface_import import NEAR, bert_folder, roberta_folder, roformer_folder

from attnkit.analysis.verify import verify_run
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.conversion.import_vocabulary import read_vocabulary
from attnkit.conversion.vocabulary_files import separators
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.loading import load_model
from attnkit.engine.predict import PredictRequest
from attnkit.engine.resolve import init_layer, resolve
from attnkit.engine.task import task_of
from attnkit.engine.trainer import TrainRequest, train
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError
from attnkit.tasks.finetuning.question_answering import QuestionAnsweringPredictor
from attnkit.tasks.finetuning.question_answering_data import QaExamples
from attnkit.tasks.finetuning.text_classification import TextClassificationPredictor
from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline
from attnkit.text.squad import Paragraph, Question

TUNED: dict[str, tuple[str, Any]] = {
    "BertForSequenceClassification": ("text-classification", {"id2label": {0: "no", 1: "yes", 2: "who knows"}}),
    "RobertaForSequenceClassification": ("text-classification", {}),
    "BertForTokenClassification": ("token-classification", {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}),
    "RobertaForTokenClassification": ("token-classification", {}),
    "BertForQuestionAnswering": ("question-answering", {}),
    "RobertaForQuestionAnswering": ("question-answering", {}),
    "RoFormerForSequenceClassification": ("text-classification", {}),
    "RoFormerForTokenClassification": ("token-classification", {}),
    "RoFormerForQuestionAnswering": ("question-answering", {}),
}
FOLDERS = {"Bert": bert_folder, "Roberta": roberta_folder, "RoFormer": roformer_folder}


def classifier_of(run: Path) -> TextClassificationPredictor:
    opened = load_model(run, "text-classification", device="cpu")
    return TextClassificationPredictor(opened, PredictRequest(run, []), print)


@pytest.mark.parametrize("name", TUNED)
def test_what_was_fine_tuned_there_predicts_here(name: str, tmp_path: Path) -> None:
    task, labels = TUNED[name]
    make = next(folder for kind, folder in FOLDERS.items() if name.startswith(kind))
    theirs = make(tmp_path / "hub", getattr(transformers, name), **labels)
    done = import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert done.command == "predict" and done.warnings == ()
    opened = load_model(tmp_path / "run", task, device="cpu")
    if task != "question-answering":
        assert read_labels(opened.checkpoint).labels == list(theirs.config.id2label.values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    order = read_vocabulary(tmp_path / "hub", theirs.config.model_type, theirs.config.vocab_size).order
    back = {there: here for here, there in enumerate(order) if there is not None}
    inputs = tokenizer(["the fox dog", "fox"], padding=True, return_tensors="pt")
    real = inputs.attention_mask.bool()
    ids = torch.tensor([[back[id] for id in row] for row in inputs.input_ids.tolist()])
    with torch.no_grad():
        found = theirs(**inputs)
        if task == "question-answering":
            begins, ends = opened.model(ids, real, torch.zeros_like(ids), real)
            torch.testing.assert_close(begins[real], found.start_logits[real], **NEAR)
            torch.testing.assert_close(ends[real], found.end_logits[real], **NEAR)
            return
        kept = real if task == "token-classification" else slice(None)
        torch.testing.assert_close(opened.model(ids, real)[kept], found.logits[kept], **NEAR)
    assert found.logits.std() > 0.05, "the test needs a model that says something"
    verified = verify_run(tmp_path / "run")
    assert not verified.n_bad
    again = export_huggingface(tmp_path / "run", tmp_path / "again").path
    assert json.loads((again / "config.json").read_text())["id2label"] == {
        str(i): n for i, n in theirs.config.id2label.items()
    }


QUESTION, CONTEXT = "over?", "the quick fox jumps"


@pytest.mark.parametrize("kind", FOLDERS)
def test_pairs_are_read_as_they_are_there(kind: str, tmp_path: Path) -> None:
    """RoBERTa has two ends between two texts, BERT one."""
    hub, run = tmp_path / "hub", tmp_path / "run"
    theirs = FOLDERS[kind](hub, getattr(transformers, f"{kind}ForSequenceClassification"), num_labels=3)
    import_huggingface(hub, run)
    order = read_vocabulary(hub, theirs.config.model_type, theirs.config.vocab_size).order
    inputs = transformers.AutoTokenizer.from_pretrained(hub)(QUESTION, CONTEXT, return_tensors="pt")
    classifier = classifier_of(run)
    rows = classifier.reader.encode([QUESTION], [CONTEXT])
    assert [order[id] for id in rows[0]] == inputs.input_ids[0].tolist()
    with torch.no_grad():
        expected = theirs(**inputs).logits[0].softmax(-1)
    assert classifier.classify([QUESTION], [CONTEXT])[0] == pytest.approx(expected.tolist(), abs=1e-5)
    again = transformers.AutoTokenizer.from_pretrained(export_huggingface(run, tmp_path / "again").path)
    assert again(QUESTION, CONTEXT).input_ids == inputs.input_ids[0].tolist()
    import_huggingface(tmp_path / "again", tmp_path / "back")
    assert classifier_of(tmp_path / "back").reader.encode([QUESTION], [CONTEXT]) == rows


@pytest.mark.parametrize("kind", FOLDERS)
def test_questions_are_read_as_they_are_there(kind: str, tmp_path: Path) -> None:
    """In one window; the answer is cut out of the text where their logits have it."""
    hub, run = tmp_path / "hub", tmp_path / "run"
    theirs = FOLDERS[kind](hub, getattr(transformers, f"{kind}ForQuestionAnswering"))
    import_huggingface(hub, run)
    opened: Any = load_model(run, "question-answering", device="cpu")
    order = read_vocabulary(hub, theirs.config.model_type, theirs.config.vocab_size).order
    inputs = transformers.AutoTokenizer.from_pretrained(hub)(
        QUESTION, CONTEXT, return_tensors="pt", return_offsets_mapping=True
    )
    offsets, firsts = (
        inputs.pop("offset_mapping")[0].tolist(),
        torch.tensor([part == 1 for part in inputs.sequence_ids()]),
    )
    words = read_tokenizer(opened.checkpoint)
    paragraph = Paragraph("", CONTEXT, (Question("a", QUESTION, (), False),))
    batch = QaExamples([paragraph], words, opened.config.windows).rows.batch(np.array([0]))
    assert [order[id] for id in batch.ids[0].tolist()] == inputs.input_ids[0].tolist()
    assert torch.equal(batch.context[0], firsts)
    with torch.no_grad():
        found = theirs(**inputs)
    scores = found.start_logits[0, :, None] + found.end_logits[0, None, :]
    allowed = torch.ones_like(scores, dtype=torch.bool).triu() & firsts[:, None] & firsts
    first, last = divmod(int(scores.masked_fill(~allowed, -torch.inf).argmax()), len(scores))
    answer = QuestionAnsweringPredictor(opened, PredictRequest(run, []), print).answer([paragraph])[0]
    assert answer.text == CONTEXT[offsets[first][0] : offsets[last][1]].strip()


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_what_was_imported_fills_masks_and_is_put_to_work(kind: str, tmp_path: Path) -> None:
    hub, run = tmp_path / "hub", tmp_path / "run"
    theirs = FOLDERS[kind](hub, getattr(transformers, f"{kind}ForMaskedLM"))
    import_huggingface(hub, run)
    order = read_vocabulary(hub, theirs.config.model_type, theirs.config.vocab_size).order
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    inputs = tokenizer(f"the quick {tokenizer.mask_token}, dog", return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**inputs).logits[0, inputs.input_ids[0].tolist().index(tokenizer.mask_token_id)]
    expected = logits.double().softmax(-1)
    opened = load_model(run, "mlm", device="cpu")
    filler = FillMaskPipeline(opened, top=3)
    guesses = filler.fill(["the quick [MASK], dog"])[0].masks[0]
    own = {piece: id for id, piece in enumerate(filler.tokenizer.tokens(range(len(order))))}
    for guess in guesses:
        assert guess.probability == pytest.approx(float(expected[order[own[guess.piece]]]), rel=1e-3)
    lines = [f"{'ab'[i % 2]}\tthe {'fox' if i % 2 else 'dog'} {i}\tit jumps" for i in range(40)]
    table = tmp_path / "table.tsv"
    table.write_text("\n".join(["label\ttext\ttext2", *lines]) + "\n")
    sets = ["limits.max_steps=2", "device=cpu", "precision=float32", "threads=1"]
    flags = {"task": "text-classification", "data.files": [str(table)]}
    config = resolve(flags, sets=sets, fixed=init_layer(run)).config
    list(train(TrainRequest(config, tmp_path / "tuned", init_from=run)))
    tuned = load_model(tmp_path / "tuned", "text-classification", device="cpu")
    assert tuned.config.model.separators == (2 if kind == "Roberta" else 1)  # type: ignore[union-attr]
    assert len(classifier_of(tmp_path / "tuned").classify(["the fox"], ["it jumps"])[0]) == 2


def test_labels_in_an_order_of_their_own_are_trained_further(tmp_path: Path) -> None:
    """The outputs mean what they meant, though the files have two of the three."""
    names = {0: "who knows", 1: "yes", 2: "no"}
    bert_folder(tmp_path / "hub", transformers.BertForSequenceClassification, id2label=names)
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    lines = [f"{'no' if i % 2 else 'yes'}\tthe {'fox' if i % 2 else 'dog'} {i}" for i in range(40)]
    table = tmp_path / "table.tsv"
    table.write_text("\n".join(["label\ttext", *lines]) + "\n")
    sets = ["limits.max_steps=1", "optimization.learning_rate=1e-8", "device=cpu", "precision=float32", "threads=1"]
    flags = {"task": "text-classification", "data.files": [str(table)]}
    config = resolve(
        flags, sets=[*sets, "finetuning.class_weights=balanced"], fixed=init_layer(tmp_path / "run")
    ).config
    assert task_of(config).dry_run(config, tmp_path / "run").n_examples == 40
    list(train(TrainRequest(config, tmp_path / "more", init_from=tmp_path / "run")))
    before, after = (classifier_of(tmp_path / name) for name in ("run", "more"))
    assert before.labels == after.labels == list(names.values())
    texts = ["the fox", "a dog", "ing"]
    assert after.classify(texts, [None] * 3) == [
        pytest.approx(row, abs=1e-4) for row in before.classify(texts, [None] * 3)
    ]
    prepared: Any = task_of(config).load_data(config, tmp_path / "more/data")
    assert prepared.train.label_counts(3)[0] == 0 and min(prepared.train.label_counts(3)[1:]) > 10


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({0: "I-x", 1: "O", 2: "B-x"}, ["O", "B-x", "I-x", "O", "B-x"]),
        ({0: "E-x", 1: "S-x", 2: "O", 3: "I-x", 4: "B-x"}, ["O", "B-x", "E-x", "O", "S-x"]),
        ({0: "B-x", 1: "O"}, None),
    ],
    ids=["its own order", "its own scheme", "a tag it lacks"],
)
def test_tags_of_their_own_are_trained_further(
    tmp_path: Path, names: dict[int, str], expected: list[str] | None
) -> None:
    bert_folder(tmp_path / "hub", transformers.BertForTokenClassification, id2label=names)
    import_huggingface(tmp_path / "hub", tmp_path / "run")
    columns = tmp_path / "tags.conll"
    columns.write_text("the O\nquick B-x\nfox I-x\nand O\ndog B-x\n\n" * 20)
    flags = {"task": "token-classification", "data.files": [str(columns)], "data.valid_files": [str(columns)]}
    sets = ["limits.max_steps=1", "device=cpu", "precision=float32", "threads=1"]
    config = resolve(flags, sets=sets, fixed=init_layer(tmp_path / "run")).config
    request = TrainRequest(config, tmp_path / "more", init_from=tmp_path / "run")
    if expected is None:
        with pytest.raises(DataError, match="unknown tag 'I-x'"):
            list(train(request))
        return
    list(train(request))
    prepared: Any = task_of(config).load_data(config, tmp_path / "more/data")
    assert prepared.labels == list(names.values())
    tags = prepared.train.batch(np.array([0])).labels
    assert [names[tag] for tag in tags.tolist()] == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"type": "RobertaProcessing"}, (2, 2)),
        ({"type": "BertProcessing"}, (1, 1)),
        (None, (1, 2)),
        ({"type": "ByteLevel"}, (1, 2)),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "RobertaProcessing"}]}, (2, 2)),
        ({"type": "TemplateProcessing", "pair": "[CLS] $A [SEP]"}, (1, 2)),
        ([], (1, 2)),
    ],
    ids=str,
)
def test_how_many_ends_stand_between_two_texts(step: Any, expected: tuple[int, int]) -> None:
    tree = {"post_processor": step}
    assert tuple(separators(tree, model) for model in ("bert", "roberta")) == expected
    for n, found in ((0, 1), (1, 1), (2, 2), (3, 2)):
        ends = [{"SpecialToken": {"id": "</s>", "type_id": 0}}] * n
        pair = [{"Sequence": {"id": "A", "type_id": 0}}, *ends, {"Sequence": {"id": "B", "type_id": 1}}]
        assert separators({"post_processor": {"type": "TemplateProcessing", "pair": pair}}, "roberta") == found


def test_tags_with_spaces_are_left_there(tmp_path: Path) -> None:
    bert_folder(tmp_path / "hub", transformers.BertForTokenClassification, id2label={0: "O", 1: "B-big city"})
    done = import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert any("the head 'classifier' was not imported" in text for text in done.warnings)


@pytest.mark.parametrize("changes", [{"problem_type": "multi_label_classification"}, {"num_labels": 1}])
def test_outputs_that_are_no_labels_are_left_there(changes: dict[str, Any], tmp_path: Path) -> None:
    bert_folder(tmp_path / "hub", transformers.BertForSequenceClassification, **changes)
    done = import_huggingface(tmp_path / "hub", tmp_path / "run")
    assert any("the head 'classifier' was not imported" in text for text in done.warnings)
    load_model(tmp_path / "run", "mlm", device="cpu")
