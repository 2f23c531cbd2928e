"""A pretrained encoder put to work: which weights are taken over, what learns how fast, what stays, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from attnkit.analysis.verify import verify_run
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.labels import Labels
from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.data.text_classification import text_batch
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.loading import load_model
from attnkit.engine.resolve import init_layer, resolve
from attnkit.engine.task import task_of
from attnkit.engine.trainer import TrainingStarted, TrainRequest, train
from attnkit.errors import AttnkitError, DataError, RunError, UsageError
from attnkit.metrics.labels import class_weights
from attnkit.models.bert import SequenceClassifier
from attnkit.tasks.finetuning.config import TextClassificationConfig
from attnkit.tasks.finetuning.task import label_loss
from attnkit.tasks.finetuning.text_classification import TASK, inherited_labels

STEADY = ["precision=float32", "device=cpu", "threads=1", "evaluation.n_samples=1", "optimization.batch_tokens=300"]


def finetuned(
    pretrained: Path, table: Path, *sets: str, dev: Path | None = None, task: str = "text-classification"
) -> TextClassificationConfig:
    flags = {"task": task, "data.files": [str(table)], "data.valid_files": None if dev is None else [str(dev)]}
    config = resolve(flags, sets=[*STEADY, *sets], fixed=init_layer(pretrained)).config
    assert isinstance(config, TextClassificationConfig)
    return config


def weights_of(run: Path, step: int, file: str = "model") -> dict[str, Tensor]:
    return safetensors.torch.load_file(run / f"checkpoints/step-{step}/{file}.safetensors")


def fresh(config: TextClassificationConfig, vocab_size: int) -> SequenceClassifier:
    torch.manual_seed(1)
    return SequenceClassifier(config.model, vocab_size, 3)


@pytest.mark.parametrize(
    ("n_lines", "epochs", "every"),
    [(10, 50.0, 5.0), (501, 20.0, 2.0), (1001, 10.0, 1.0), (2000, 5.0, 1.0), (9000, 5.0, 1.0)],
)
def test_few_texts_are_trained_on_more_often(
    pretrained: Path, tmp_path: Path, n_lines: int, epochs: float, every: float
) -> None:
    table = tmp_path / "table.tsv"
    table.write_text("label\ttext\n" + "a\tb\n" * (n_lines - 1))
    config = finetuned(pretrained, table)
    assert (config.limits.max_epochs, config.evaluation.every_epochs) == (epochs, every)
    (tmp_path / "table.conll").write_text("a O\n" * 10 * n_lines)
    tagging = resolve(
        {"task": "token-classification", "data.files": [str(tmp_path / "table.conll")]}, fixed=init_layer(pretrained)
    ).config
    assert tagging.limits.max_epochs == max(10.0, epochs)
    limited = finetuned(pretrained, table, "limits.max_steps=7", "evaluation.every_steps=2")
    assert (limited.limits.max_epochs, limited.evaluation.every_epochs) == (None, None)


def test_the_encoder_and_the_pooler_are_taken_over_and_nothing_else(workshop: Any, pretrained: Path) -> None:
    config, giver = finetuned(pretrained, workshop.file("table.tsv")), weights_of(pretrained, 3)
    vocab_size = len(giver["embedding.weight"])
    model, before = (fresh(config, vocab_size) for _ in range(2))
    TASK.init_weights(config, model, RunFolder(pretrained).checkpoint()[0], None)
    for (name, now), old in zip(model.state_dict().items(), before.state_dict().values(), strict=True):
        there = "next_sentence." + name if name.startswith("pooler.") else name.removeprefix("encoder.")
        assert torch.equal(now, old if name.startswith("output.") else giver[there]), name
    kept = {name for name in giver if name.startswith(("predictor.", "output.", "next_sentence.output."))}
    assert len(model.state_dict()) == len(giver) - len(kept) + 2


def test_random_features_of_attention_are_taken_over(workshop: Any, tmp_path: Path) -> None:
    """They are no parameters, but what the encoder was trained with."""
    run = tmp_path / "run"
    changes = {"model__alignment": "kernel", "model__distribution": "normalize", "limits__max_steps": 1}
    workshop.train(workshop.configure_task("masked tokens", **changes), run)
    config, giver = finetuned(run, workshop.file("table.tsv")), weights_of(run, 1)
    name = next(name for name in giver if name.endswith("directions"))
    model = SequenceClassifier(config.model, len(giver["embedding.weight"]), 3)
    model.get_buffer(f"encoder.{name}").zero_()
    TASK.init_weights(config, model, RunFolder(run).checkpoint()[0], None)
    assert torch.equal(model.state_dict()[f"encoder.{name}"], giver[name])


def test_from_scratch_takes_architecture_and_vocabulary_alone(workshop: Any, pretrained: Path, tmp_path: Path) -> None:
    config = finetuned(pretrained, workshop.file("table.tsv"), "finetuning.from_scratch=true", "limits.max_steps=1")
    model, before = (fresh(config, 300) for _ in range(2))
    TASK.init_weights(config, model, RunFolder(pretrained).checkpoint()[0], None)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    assert TASK.lr_multipliers(config, model) == {}
    list(train(TrainRequest(config, tmp_path / "run", init_from=pretrained)))
    own, other = ((run / "tokenizer.json").read_bytes() for run in (tmp_path / "run", pretrained))
    assert own == other and config.model.n_layers == 2


def test_lower_layers_learn_slower(workshop: Any, pretrained: Path) -> None:
    config = finetuned(pretrained, workshop.file("table.tsv"), "finetuning.layerwise_lr_decay=0.5")
    model = fresh(config, 300)
    found = TASK.lr_multipliers(config, model)
    expected = {"embedding": 1 / 8, "places": 1 / 8, "segments": 1 / 8, "embedding_norm": 1 / 8}
    for name, _ in model.named_parameters():
        part, _, rest = name.removeprefix("encoder.").partition(".")
        own = {"0": 1 / 4, "1": 1 / 2}[rest[0]] if part == "layers" else expected.get(part, 1.0)
        assert found.get(name, 1.0) == own, name


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("freeze_layers=1", ["embedding", "places", "segments", "layers.0."]),
        ("freeze=embeddings", ["embedding", "places", "segments"]),
        ("freeze=layers", ["layers."]),
    ],
)
def test_stopping_and_going_on_changes_no_bit_of_a_partly_frozen_run(
    workshop: Any, pretrained: Path, tmp_path: Path, setting: str, parts: list[str]
) -> None:
    sets = [
        f"finetuning.{setting}",
        "finetuning.class_weights=balanced",
        "limits.max_steps=9",
        "evaluation.every_steps=4",
    ]
    config = finetuned(pretrained, workshop.file("table.tsv"), *sets)
    whole = workshop.train(config, tmp_path / "whole", init_from=pretrained)
    pieces = workshop.train(config, tmp_path / "pieces", stops=(2, 4), init_from=pretrained)
    assert whole == pieces and whole.step == 9
    for file in ("model", "optimizer"):
        one, other = weights_of(tmp_path / "whole", 9, file), weights_of(tmp_path / "pieces", 9, file)
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    giver, found = weights_of(pretrained, 3), weights_of(tmp_path / "whole", 9)
    still = {name for name in found if torch.equal(found[name], giver.get(name.removeprefix("encoder."), Tensor()))}
    frozen = tuple(f"encoder.{part}" for part in parts)
    assert still == {name for name in found if name.startswith(frozen)}
    assert verify_run(tmp_path / "whole").n_bad == 0
    moments = {name.partition(".")[2] for name in weights_of(tmp_path / "whole", 9, "optimizer")}
    assert moments == found.keys() - still


def test_a_rare_label_counts_for_more_and_is_reported_as_it_is() -> None:
    torch.manual_seed(2)
    rows = [[1, 5, 6, 2], [1, 7, 2], [1, 8, 9, 9, 2], [1, 5, 2]]
    model = SequenceClassifier(config_of_three(), 12, 3).double().eval()
    batch = text_batch(rows)
    batch = type(batch)(*batch.inputs, torch.tensor([0, 2, 0, 1]))
    weights = class_weights([6, 3, 1])
    assert weights == pytest.approx([10 / 18, 10 / 9, 10 / 3])
    loss = label_loss(lambda texts: model(*texts.inputs), torch.device("cpu"), weights=torch.tensor(weights))
    terms = loss(batch)["nll"]
    total = plain = 0.0
    for row, label in zip(rows, batch.labels.tolist(), strict=True):
        scores = model(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.bool))[0].tolist()
        nll = math.log(sum(math.exp(score) for score in scores)) - scores[label]
        total, plain = total + weights[label] * nll, plain + nll
    assert float(terms.total.detach()) == pytest.approx(total, rel=1e-6)
    assert terms.reported is not None and float(terms.reported) == pytest.approx(plain, rel=1e-9)


def config_of_three() -> Any:
    from attnkit.models.language_config import BertConfig

    return BertConfig(d_model=16, n_heads=2, n_layers=1, d_ff=32, max_length=16)


@pytest.fixture(scope="module")
def taught(workshop: Any, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of texts in which one word decides, and its events beside it."""
    run = tmp_path_factory.mktemp("taught") / "run"
    sets = ["limits.max_epochs=20", "optimization.learning_rate=0.01", "evaluation.every_epochs=10"]
    config = finetuned(pretrained, workshop.file("table.tsv"), *sets, dev=workshop.file("table.tsv"))
    done = workshop.train(config, run, init_from=pretrained)
    assert done.metrics["accuracy"] > 97 and done.metrics["macro_f1"] > 97
    return run


def test_the_development_set_is_scored_as_by_hand(taught: Path) -> None:
    opened = load_model(taught, "text-classification", device="cpu")
    prepared = task_of(opened.config).load_data(opened.config, taught / "data")
    found = task_of(opened.config).evaluation(opened.config, prepared, opened.device, None)(opened.model)
    valid, right, nll = prepared.valid, 0, 0.0
    for i in range(len(valid)):
        batch = valid.batch(np.array([i]))
        with torch.no_grad():
            log_probs = opened.model(*batch.inputs)[0].double().log_softmax(-1)
        right += int(log_probs.argmax()) == int(batch.labels)
        nll -= float(log_probs[batch.labels])
    assert found is not None and found["accuracy"] == pytest.approx(100 * right / len(valid))
    # A loss of 6e-4 is the logarithm of a float32 number just above 1, whose spacing is 1.2e-7.
    assert found["loss"] == pytest.approx(nll / len(valid), rel=1e-5, abs=1.2e-7)


def test_a_finetuned_run_begins_another_of_its_kind(workshop: Any, taught: Path, tmp_path: Path) -> None:
    """With its head, if the labels are the same."""
    config = finetuned(taught, workshop.file("table.tsv"), "limits.max_steps=1", "optimization.learning_rate=1e-6")
    done = workshop.train(config, tmp_path / "run", init_from=taught)
    assert done.metrics["accuracy"] > 90
    others = table(tmp_path / "others.tsv", ["label\ttext"] + [f"{'xy'[i % 2]}\tthe film {i}" for i in range(40)])
    with pytest.raises(DataError, match="unknown label 'x' and 1 more: not in the --init-from run") as caught:
        list(train(TrainRequest(finetuned(taught, others), tmp_path / "other", init_from=taught)))
    assert "known labels: " in str(caught.value.help)


def test_an_encoder_that_began_with_scaled_vectors_is_put_to_work(
    workshop: Any, pretrained: Path, tmp_path: Path
) -> None:
    """Neither the source of its embeddings matters to the classifier, nor next-sentence pairs."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("2 16\n" + "".join(f"{word} {'0.5 -1 ' * 8}\n" for word in ("the", "film")))
    given = {"model__embeddings": str(vectors), "model__scale_embeddings": True, "limits__max_steps": 1}
    workshop.train(workshop.configure_task("masked tokens", **given), tmp_path / "bert")
    config = finetuned(tmp_path / "bert", workshop.file("table.tsv"), "limits.max_steps=1", "model.separators=2")
    list(train(TrainRequest(config, tmp_path / "run", init_from=tmp_path / "bert")))
    assert config.model.scale_embeddings is False and config.model.separators == 2
    again = finetuned(tmp_path / "run", workshop.file("table.tsv"), "limits.max_steps=1", "model.separators=1")
    with pytest.raises(RunError, match="separators is 1, but the encoder was trained with 2"):
        list(train(TrainRequest(again, tmp_path / "other", init_from=tmp_path / "run")))


def test_columns_are_told_and_kept(pretrained: Path, tmp_path: Path) -> None:
    """As they were named in the first file; those of others may be named otherwise."""
    rows = [f"{i}\t{'ab'[i % 2]}\tthe film {i}\tsome people" for i in range(40)]
    files = (
        table(tmp_path / "train.tsv", ["idx\tgold\tPremise\thypothesis", *rows]),
        table(tmp_path / "dev.tsv", ["label\ttext\ttext2", *(row.partition("\t")[2] for row in rows[:4])]),
    )
    config = finetuned(pretrained, files[0], "limits.max_steps=1", dev=files[1])
    events = list(train(TrainRequest(config, tmp_path / "run", init_from=pretrained)))
    told = [event.text for event in events if isinstance(event, StatusEvent) and "is the text" in event.text]
    assert told == [
        "'Premise' is the text, 'hypothesis' is the text2, 'gold' the label; ignored: 'idx'",
        "'text' is the text, 'text2' is the text2, 'label' the label",
    ]
    labels = read_labels(RunFolder(tmp_path / "run").checkpoint()[0])
    assert labels == Labels(labels=["a", "b"], columns=["gold", "Premise", "hypothesis"]) and labels.pairs is True
    singles = table(tmp_path / "singles.tsv", [row.rpartition("\t")[0] for row in ["idx\tgold\ttext\t", *rows]])
    with pytest.raises(
        DataError, match="has single texts, but the initial run was trained on pairs of texts"
    ) as caught:
        list(train(TrainRequest(finetuned(tmp_path / "run", singles), tmp_path / "other", init_from=tmp_path / "run")))
    assert caught.value.where == f"{singles}:1"


def test_a_classifier_of_which_no_columns_are_known_takes_both_kinds() -> None:
    """One of an older attnkit, or of the Hugging Face Hub."""
    known, older = Labels(labels=["a", "b"], columns=["label", "text"]), Labels(labels=["a", "b"])
    assert b"columns" not in older.to_bytes() and Labels.parse(older.to_bytes(), "here") == older
    for found in (known, Labels(labels=["a", "b"], columns=["label", "text", "text2"])):
        assert inherited_labels(older, found, "here") == found
    with pytest.raises(DataError, match="unknown label 'c'"):
        inherited_labels(older, Labels(labels=["a", "c"]), "here")
    with pytest.raises(RunError, match=r"invalid labels.json"):
        Labels.parse(b'{"format": "attnkit labels", "labels": ["a", "b"], "columns": ["label"]}', "here")


def table(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


GOOD = ["label\ttext"] + [f"{'ab'[i % 2]}\tthe film {i}" for i in range(40)]
WRONG: dict[str, tuple[list[str], list[str], str, str]] = {
    "one label": (["label\ttext"] + ["a\tthe film"] * 9, GOOD, "every text has the label 'a'", "train.tsv"),
    "no texts": (["label\ttext"], GOOD, "no texts", "train.tsv"),
    "blank texts": (["label\ttext", "a\t ", "b\t"], GOOD, "no texts left for training", "train.tsv"),
    "nothing to validate on": (GOOD, ["label\ttext", "a\t "], "no text left for validation", "dev.tsv"),
    "unknown columns": (["a\tb\tc\td", *["1\t2\t3\t4"] * 3], GOOD, "not clear which of 'a', 'b'", "train.tsv:1"),
    "a label that is new": (GOOD, ["label\ttext", "a\tx", "c\ty"], "label 'c' does not occur", "dev.tsv:3"),
    "pairs beside singles": (GOOD, ["label\ttext\ttext2", "a\tx\ty"], "this file has pairs of texts", "dev.tsv:1"),
    "no header": (["a\tthe film", *GOOD[1:]], GOOD, "looks like an example", "train.tsv:1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_tables_that_teach_nothing_are_refused(pretrained: Path, tmp_path: Path, case: str) -> None:
    lines, dev, what, where = WRONG[case]
    files = table(tmp_path / "train.tsv", lines), table(tmp_path / "dev.tsv", dev)
    config = finetuned(pretrained, files[0], dev=files[1])
    with pytest.raises(DataError) as caught:
        list(train(TrainRequest(config, tmp_path / "run", init_from=pretrained)))
    assert what in caught.value.what and str(caught.value.where).endswith(where)


def test_texts_that_are_all_held_out_are_named(pretrained: Path, tmp_path: Path) -> None:
    few = table(tmp_path / "train.tsv", ["label\ttext", *["a\tgood", "b\tbad"] * 100])
    config = finetuned(pretrained, few)
    with pytest.raises(DataError) as caught:
        list(train(TrainRequest(config, tmp_path / "run", init_from=pretrained)))
    assert caught.value.help == "190 repeat those held out for validation: name others with --dev"


def test_long_and_blank_texts_are_counted(pretrained: Path, tmp_path: Path) -> None:
    lines = [*GOOD, "a\t", f"b\t{'word ' * 60}", f"a\t{'word ' * 60}"]
    files = table(tmp_path / "train.tsv", lines), table(tmp_path / "dev.tsv", [*GOOD[:5], f"b\t{'x ' * 99}"])
    config = finetuned(pretrained, files[0], "limits.max_steps=1", dev=files[1])
    events = list(train(TrainRequest(config, tmp_path / "run", init_from=pretrained)))
    told = next(event.text for event in events if isinstance(event, WarningEvent))
    assert told.startswith("2 of 42 training and 1 of 5 validation texts are longer than 24 tokens")
    counts = next(event.counts for event in events if isinstance(event, TrainingStarted))
    assert {"blank": 1, "cut_short": 2, "cut_short_in_validation": 1, "train": 42, "valid": 5}.items() <= counts.items()


def test_patience_ends_a_run(workshop: Any, pretrained: Path, tmp_path: Path) -> None:
    sets = [
        "limits.early_stopping_patience=2",
        "limits.max_epochs=50",
        "evaluation.every_steps=1",
        "optimization.learning_rate=1e-12",
    ]
    done = workshop.train(
        finetuned(pretrained, workshop.file("table.tsv"), *sets), tmp_path / "r", init_from=pretrained
    )
    assert done.reason == "patience" and done.step <= 8


REFUSED: dict[str, tuple[list[str], type[AttnkitError], str]] = {
    "more layers than there are": (
        ["finetuning.freeze_layers=3"],
        UsageError,
        "freeze_layers=3, but the model has 2 layers",
    ),
    "frozen and fresh": (
        ["finetuning.freeze_layers=1", "finetuning.from_scratch=true"],
        UsageError,
        "cannot be combined with finetuning.from_scratch",
    ),
    "a frozen part and fresh": (
        ["finetuning.freeze=embeddings", "finetuning.from_scratch=true"],
        UsageError,
        "finetuning.freeze cannot be combined with finetuning.from_scratch",
    ),
    "longer than the positions": (["data.max_length=99", "model.positions=learned"], UsageError, "data.max_length=99"),
    "another width": (["model.d_model=32"], RunError, "model.d_model is 32, but the encoder was trained with 16"),
    "other heads": (["model.n_heads=4"], RunError, "model.n_heads is 4"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_do_not_fit_the_encoder(workshop: Any, pretrained: Path, tmp_path: Path, case: str) -> None:
    sets, kind, what = REFUSED[case]
    with pytest.raises(kind, match=what):
        config = finetuned(pretrained, workshop.file("table.tsv"), *sets)
        list(train(TrainRequest(config, tmp_path / "run", init_from=pretrained)))
    assert not (tmp_path / "run/checkpoints").exists()


def test_only_runs_of_hidden_words_are_finetuned(trained: Path, workshop: Any) -> None:
    with pytest.raises(RunError, match="'translation', not a masked language model or a text classifier") as caught:
        finetuned(trained, workshop.file("table.tsv"))
    assert caught.value.help is not None and "attnkit train --task mlm" in caught.value.help


def test_the_preset_is_the_encoders(pretrained: Path, workshop: Any) -> None:
    found = resolve(
        {"task": "text-classification", "data.files": [str(workshop.file("table.tsv"))]}, fixed=init_layer(pretrained)
    )
    assert found.config.preset == "tiny" and found.origin("preset") == "width of the model"
    assert found.config.model.dropout == 0.1 and found.config.model.next_sentence is False
    assert found.origin("model.d_model") == f"--init-from {pretrained}"
