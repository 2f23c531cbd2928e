"""What runs of ELECTRA are used for: each command takes the encoder, and what fills masks takes the generator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language import configure, prepare

import attnkit
from attnkit.analysis.embed_transformer import open_reader
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.config import Layer
from attnkit.engine.loading import load_model
from attnkit.engine.plan import PlanRequest, plan
from attnkit.engine.resolve import inherited, resolve
from attnkit.engine.task import TrainingOutcome, task_of
from attnkit.errors import UsageError
from attnkit.kernels.jit import is_available
from attnkit.models.electra import Electra
from attnkit.models.layers import PackedLayout
from attnkit.models.parts import language_part_of
from attnkit.tasks.finetuning.task import ENCODER_PREFIX
from attnkit.tasks.language_modeling.compare import compare
from attnkit.tasks.language_modeling.data import load_text
from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline
from attnkit.tasks.language_modeling.score import score_texts
from attnkit.tasks.language_modeling.task import make_model
from attnkit.text.tokenizer import load as load_tokenizer


@pytest.fixture(scope="module")
def run(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose weights are far from those drawn."""
    path = tmp_path_factory.mktemp("electra") / "run"
    sets = ["limits.max_steps=4", "optimization.learning_rate=0.05", "optimization.warmup_steps=1", "model.n_layers=2"]
    workshop.train(configure("mlm", [workshop.file("text.txt")], "objective=electra", *sets), path)
    return path


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(run, "mlm", device="cpu").model.state_dict())


def test_the_run_says_what_it_is(run: Path) -> None:
    opened = load_model(run, "mlm", device="cpu")
    assert isinstance(opened.model, Electra)
    card = (run / "README.md").read_text()
    assert "ELECTRA" in card and "recall" in card
    assert "attnkit finetune run --task text-classification --train train.tsv" in card
    assert not list(task_of(opened.config).find_errors(RunFolder(run).checkpoint()[0], opened.config))


@pytest.mark.parametrize("task", ["text-classification", "token-classification", "question-answering"])
def test_fine_tuning_begins_from_the_encoder(workshop: Any, run: Path, tmp_path: Path, task: str) -> None:
    """Compared before the first step, with nothing of generator or detector in the run."""
    tsv = tmp_path / "a.tsv"
    tsv.write_text("label\ttext\n" + "".join(f"{'ab'[i % 2]}\tthe line {i}\n" for i in range(40)))
    flags = {"task": task, "data.files": [str(tsv)]}
    config = resolve(flags, sets=["device=cpu", "precision=float32"], fixed=inherited(run, None)).config
    kind, source = task_of(config), RunFolder(run).checkpoint()[0]
    kind.check_compatible(source, config)
    torch.manual_seed(5)
    vocab_size = load_tokenizer(run / "tokenizer.json").vocab_size
    model = kind.labels.model(config, vocab_size, 2)
    kind.init_weights(config, model, source, None)
    pretrained = weights_of(run)
    own = {name: tensor for name, tensor in model.state_dict().items() if name.startswith(ENCODER_PREFIX)}
    assert own and own.keys() == {name for name in pretrained if name.startswith(ENCODER_PREFIX)}
    for name, tensor in own.items():
        assert torch.equal(tensor, pretrained[name]), name


def test_a_classifier_trains_and_resumes(workshop: Any, run: Path, tmp_path: Path) -> None:
    tsv = tmp_path / "a.tsv"
    tsv.write_text("label\ttext\n" + "".join(f"{'ab'[i % 2]}\tthe line {'xy'[i % 2]} {i}\n" for i in range(60)))
    flags = {"task": "text-classification", "data.files": [str(tsv)], "limits.max_steps": 3}
    sets = ["device=cpu", "precision=float32", "threads=1", "optimization.batch_tokens=200"]
    config = resolve(flags, sets=sets, fixed=inherited(run, None)).config
    assert workshop.train(config, tmp_path / "film", init_from=run).step == 3
    assert workshop.train(config, tmp_path / "film").already


def test_vectors_are_those_of_the_encoder(run: Path) -> None:
    reader = open_reader(run, device="cpu")
    assert reader.model is not None and reader.width == 32
    encoder = load_model(run, "mlm", device="cpu").model.encoder
    for name, tensor in reader.model.state_dict().items():
        assert torch.equal(tensor, encoder.state_dict()[name])


def test_masks_are_filled_by_the_generator(run: Path) -> None:
    """Against probabilities computed from the generator's own layers."""
    opened = load_model(run, "mlm", device="cpu")
    filler = FillMaskPipeline(opened, top=3)
    (filled,) = filler.fill(["the [MASK] was good"])
    (rows,) = filler.encode(["the [MASK] was good"], 1, "texts")[0]
    generator = opened.model.generator
    with torch.no_grad():
        logits = generator.head(generator.hidden(torch.tensor([rows]), PackedLayout.unpacked(1)))[0]
    place = rows.index(filler.mask)
    expected = logits[place].double().softmax(-1)
    for guess in filled.masks[0]:
        found = [float(expected[i]) for i in range(len(expected)) if filler.tokenizer.tokens([i]) == [guess.piece]]
        assert any(guess.probability == pytest.approx(each, rel=1e-6) for each in found)
    (scored,) = score_texts(opened, ["the film was good"])
    assert len(scored.tokens) == len(scored.token_log_probs) and all(value < 0 for value in scored.token_log_probs)


def test_a_precision_without_loops_is_not_reported(run: Path) -> None:
    """This generator is narrower than its embeddings, for which there are no compiled loops."""
    with pytest.warns(UserWarning, match="d_embedding.; using torch in float32 instead of int8"):
        coarse = attnkit.MaskedLM.load(run, device="cpu", precision="int8")
    plain = attnkit.MaskedLM.load(run, device="cpu")
    assert (coarse.summary.precision, coarse.summary.engine) == ("float32", "torch")
    lines = ["the [MASK] was good"]
    assert coarse.fill(lines) == plain.fill(lines) and np.array_equal(coarse.embed(lines), plain.embed(lines))


@pytest.mark.skipif(not is_available(), reason="needs numba")
def test_the_precision_is_that_of_the_predictions(workshop: Any, tmp_path: Path) -> None:
    """A generator as wide as its embeddings runs in compiled loops, and so does the encoder, for embeddings."""
    sets = ["objective=electra", "electra.generator_size=1.0", "limits.max_steps=1"]
    workshop.train(configure("mlm", [workshop.file("text.txt")], *sets), tmp_path / "run")
    plain, coarse = (
        attnkit.MaskedLM.load(tmp_path / "run", device="cpu", precision=name, threads=1) for name in ("float32", "int8")
    )
    assert (coarse.summary.precision, coarse.summary.engine) == ("int8", "compiled")
    text = "the film was good"
    exact, found = (model.score([text])[0].log_prob for model in (plain, coarse))
    assert found != exact and found == pytest.approx(exact, rel=0.05)
    vectors = [model.embed([text]) for model in (plain, coarse)]
    assert not np.array_equal(*vectors) and np.allclose(*vectors, atol=0.1)


def test_commands_read_the_run(run: Path, workshop: Any, call: Any, tmp_path: Path) -> None:
    code, out, _ = call("fill-mask", str(run), "the [MASK] was good", "--json")
    assert code == 0 and len(json.loads(out)["masks"][0]) == 5
    code, _, err = call("embed", str(run), str(workshop.file("text.txt")), "-o", str(tmp_path / "v.npy"))
    assert code == 0, err
    assert np.load(tmp_path / "v.npy").shape[1] == 32
    code, out, err = call("attend", str(run), "the film was good", "--json")
    assert code == 0, err
    gpt = tmp_path / "gpt"
    workshop.train(configure("clm", [workshop.file("text.txt")], "limits.max_steps=1"), gpt)
    assert len(compare((run, gpt), "the film", device="cpu")[0].places) >= 2
    code, out, err = call("verify", str(run))
    assert code == 0, err


def test_a_translator_begins_from_the_encoder(workshop: Any, run: Path, tmp_path: Path) -> None:
    from attnkit.tasks.translation.bert_encoder import init_encoder
    from attnkit.tasks.translation.task import TASK

    flags = {"data.src": [str(workshop.file("train.src"))], "data.tgt": [str(workshop.file("train.tgt"))]}
    config = resolve(flags, sets=["device=cpu"], preset_name="tiny", fixed=inherited(run, None)).config
    TASK.check_compatible(RunFolder(run).checkpoint()[0], config)
    model = TASK.sized_model(config, (load_tokenizer(run / "tokenizer.json").vocab_size, 40))
    init_encoder(model, RunFolder(run).checkpoint()[0])
    pretrained = weights_of(run)
    for name, tensor in model.encoder.layers.state_dict().items():
        assert torch.equal(tensor, pretrained[f"encoder.layers.{name}"]), name


def test_pretraining_goes_on_with_the_same_objective(workshop: Any, run: Path, tmp_path: Path) -> None:
    flags = {"task": "mlm", "data.files": [str(workshop.file("text.txt"))], "limits.max_steps": 1}
    sets = ["device=cpu", "precision=float32", "threads=1"]
    config = resolve(flags, sets=sets, preset_name="tiny", fixed=inherited(run, None)).config
    assert config.objective == "electra"
    workshop.train(config, tmp_path / "more", init_from=run)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("objective", "mlm", "objective is mlm, but the run was trained with electra"),
        ("electra.generator_size", "1", "electra.generator_size is 1, but the run was trained with 0.25"),
    ],
)
def test_another_objective_or_generator_is_refused_early(
    workshop: Any, run: Path, tmp_path: Path, call: Any, key: str, value: str, message: str
) -> None:
    """By a dry run and by the run itself, which leaves no folder."""
    given = ["pretrain-mlm", str(workshop.file("text.txt")), "-o", str(tmp_path / "other"), "--init-from", str(run)]
    given += ["--preset", "tiny", "--max-steps", "1", "--device", "cpu", "--set", f"{key}={value}"]
    for options in (["--dry-run"], []):
        code, _, err = call(*given, *options)
        assert code == 4
        assert [line.strip() for line in err.splitlines()] == [
            f"error: {message}",
            f"at {key}",
            f"help: leave {key} out: --init-from sets it",
        ]
        assert not (tmp_path / "other").exists()
    rounded = ["--set", "electra.generator_size=0.4"]  # one of two heads, too
    assert call(*given[:-2], *rounded, "--dry-run")[0] == 0


def test_settings_are_inherited_with_their_objective(workshop: Any, run: Path) -> None:
    """So that another objective is refused as such, not for a setting that nobody gave."""
    origin, tree = inherited(run, None)
    fixed = Layer(origin, {**tree, "electra": {**tree["electra"], "generator_size": 0.5}})
    flags = {"task": "mlm", "data.files": [str(workshop.file("text.txt"))]}
    same, other = (
        resolve({**flags, "objective": given}, preset_name="tiny", fixed=fixed).config for given in (None, "mlm")
    )
    assert (same.objective, same.electra.generator_size, other.objective) == ("electra", 0.5, "mlm")


def test_the_next_step_is_fine_tuning(workshop: Any, tmp_path: Path, call: Any) -> None:
    """The generator, which fills masks, guesses worse than a BERT of the encoder's size."""
    given = ["pretrain-mlm", str(workshop.file("text.txt")), "--preset", "tiny", "--max-steps", "1", "--device", "cpu"]
    sizes = [text for key in ("vocabulary.size=300", "model.n_layers=1") for text in ("--set", key)]
    for objective, command in (
        ("electra", ["finetune", str(tmp_path / "electra"), "--task", "text-classification", "--train", "train.tsv"]),
        ("mlm", ["fill-mask", str(tmp_path / "mlm")]),
    ):
        run = ["-o", str(tmp_path / objective), "--set", f"objective={objective}"]
        code, out, _ = call(*given, *sizes, *run)
        assert code == 0 and out.splitlines()[-1].endswith("attnkit " + " ".join(command))


def test_settings_of_electra_need_its_objective(workshop: Any) -> None:
    for key, value in (("generator_size", "0.5"), ("detection_weight", "20")):
        with pytest.raises(UsageError, match=f"electra.{key}={value} needs objective=electra"):
            configure("mlm", [workshop.file("text.txt")], f"electra.{key}={value}")
        assert configure("mlm", [workshop.file("text.txt")], f"electra.{key}={value}", "objective=electra").generator


def test_all_selected_tokens_are_masked_for_the_generator(workshop: Any, tmp_path: Path) -> None:
    """Section 2 of the paper; shares that the user sets are kept, and those of a stored run."""
    files = [workshop.file("text.txt")]

    def shares(*sets: str) -> tuple[float, float]:
        masking = configure("mlm", files, *sets).masking
        return masking.mask_replace_prob, masking.random_replace_prob

    assert shares() == (0.8, 0.1)
    assert shares("objective=electra") == shares("objective=electra", "masking.mask_unit=words") == (1.0, 0.0)
    assert shares("objective=electra", "masking.mask_replace_prob=0.8") == (0.8, 0.1)
    assert shares("objective=electra", "masking.random_replace_prob=0") == (0.8, 0.0)
    config = configure("mlm", files, "objective=electra")
    assert type(config).model_validate_json(config.model_dump_json()) == config
    prepare(config, tmp_path)
    prepared = load_text(config, tmp_path / "data")
    batch = prepared.train.batch(np.arange(len(prepared.train)), 1, 0)
    mask = prepared.tokenizer.token_id("[MASK]")
    assert len(batch.chosen) > 50 and (batch.ids.view(-1)[batch.chosen] == mask).all()


@pytest.mark.parametrize("key", ["model.next_sentence", "fsdp"])
def test_what_does_not_go_together_is_refused(workshop: Any, key: str) -> None:
    with pytest.raises(UsageError, match=f"objective electra cannot be combined with {key}"):
        configure("mlm", [workshop.file("text.txt")], "objective=electra", f"{key}=true")


def test_parts_of_an_electra_are_frozen_by_name(workshop: Any, run: Path) -> None:
    """All but the encoder counts as output; what both share, as embeddings."""
    names = [name for name, _ in load_model(run, "mlm", device="cpu").model.named_parameters()]
    parts = {name: language_part_of(name) for name in names}
    assert {parts[name] for name in names if name.startswith(("generator.", "detector."))} == {"output"}
    assert parts["encoder.embedding.weight"] == "embeddings"
    assert {parts[name] for name in names if name.startswith("encoder.layers.")} == {"layers"}
    sets = ["finetuning.freeze_layers=1", "finetuning.layerwise_lr_decay=0.5", "model.n_layers=2", "objective=electra"]
    config = configure("mlm", [workshop.file("text.txt")], *sets)
    model, task = make_model(config, 300), task_of(config)
    task.freeze(config, model)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    embeddings = ("encoder.embedding.", "encoder.embedding_norm.", "encoder.segments.")
    assert frozen == {name for name in names if name.startswith(("encoder.layers.0.", *embeddings))}
    rates = task.lr_multipliers(config, model)
    assert rates["encoder.embedding.weight"] == 0.25 and rates["encoder.layers.0.attention.output.weight"] == 0.5


def test_a_plan_counts_the_generator() -> None:
    sizes = {"model.d_model": 16, "model.n_heads": 2, "model.d_ff": 32, "model.n_layers": 1, "model.max_length": 24}
    found = {}
    for objective in ("mlm", "electra"):
        given = {"task": "mlm", "device": "cpu", "threads": 1, "precision": "float32", "vocabulary.size": 300, **sizes}
        given |= {"objective": objective, "data.sequence_length": 24, "optimization.batch_tokens": 200}
        found[objective] = plan(PlanRequest(given, preset="tiny", tokens=1e5, seconds=0.05))
    small, large = found["mlm"], found["electra"]
    assert large.n_parameters > small.n_parameters
    assert large.memory_parts["activations"] > 1.2 * small.memory_parts["activations"]


@pytest.mark.parametrize(("recall", "n_steps", "warned"), [(0.0, 500, True), (0.1, 500, False), (0.0, 20, False)])
def test_an_encoder_that_detects_nothing_is_warned_of(workshop: Any, recall: float, n_steps: int, warned: bool) -> None:
    config = configure("mlm", [workshop.file("text.txt")], "objective=electra")
    outcome = TrainingOutcome({"loss": 20.0, "recall": recall}, [20.0], n_steps, False)
    found = list(task_of(config).outcome_warnings(config, None, outcome))
    assert [warning.splitlines()[0] for warning in found] == ["the encoder takes no token for replaced"] * warned
