"""Training by calls: the same runs as those of the commands, resumed, with events."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import attnkit
from attnkit.cli.main import COMMANDS
from attnkit.decoding.config import SearchArguments, SearchConfig
from attnkit.engine.events import TrainingFinished, TrainingStarted
from attnkit.errors import UsageError

SMALL = {"model.d_model": 16, "model.n_heads": 2, "model.n_layers": 1, "model.d_ff": 32, "data.sequence_length": 24}


def settings_of(workshop: Any, **changes: Any) -> dict[str, Any]:
    pairs = (text.split("=", 1) for text in workshop.settings(**changes))
    return {key: json.loads(value) for key, value in pairs}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_call_trains_the_run_of_its_command(workshop: Any, trained: Path, tmp_path: Path) -> None:
    files = {side: workshop.file(side) for side in ("train.src", "train.tgt", "valid.src", "valid.tgt")}
    seen: list[Any] = []
    given = {
        "valid_src": files["valid.src"],
        "valid_tgt": files["valid.tgt"],
        "preset": "tiny",
        "settings": settings_of(workshop),
        "on_event": seen.append,
    }
    translator = attnkit.train(files["train.src"], files["train.tgt"], tmp_path / "run", **given)
    weights = [run / "checkpoints/step-12/model.safetensors" for run in (tmp_path / "run", trained)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert isinstance(translator, attnkit.Translator)
    assert isinstance(seen[-1], TrainingFinished) and any(isinstance(one, TrainingStarted) for one in seen)
    again: list[Any] = []
    attnkit.train(files["train.src"], files["train.tgt"], tmp_path / "run", **{**given, "on_event": again.append})
    assert [type(one) for one in again] == [TrainingFinished] and again[0].already


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_exception_of_a_listener_stops_and_a_call_resumes(workshop: Any, tmp_path: Path) -> None:
    def stop(event: Any) -> None:
        if getattr(event, "step", 0) == 7:
            raise KeyboardInterrupt

    given = {"preset": "tiny", "settings": settings_of(workshop)}
    sides = workshop.file("train.src"), workshop.file("train.tgt")
    with pytest.raises(KeyboardInterrupt):
        attnkit.train(*sides, tmp_path / "run", on_event=stop, **given)
    attnkit.train(*sides, tmp_path / "run", **given)
    attnkit.train(*sides, tmp_path / "whole", **given)
    one, other = ((tmp_path / name / "checkpoints/step-12/model.safetensors").read_bytes() for name in ("run", "whole"))
    assert one == other


def test_every_task_has_a_call(workshop: Any, tmp_path: Path) -> None:
    text = workshop.file("text.txt")
    given: Any = {"preset": "tiny", "max_steps": 2, "device": "cpu", "threads": 1, "settings": SMALL}
    bert = attnkit.pretrain_mlm(text, tmp_path / "bert", **given)
    assert type(bert) is attnkit.MaskedLM and "step-2" in repr(bert)
    assert type(attnkit.pretrain_clm([text], tmp_path / "gpt", **given)) is attnkit.CausalLM
    short: Any = {"max_steps": 2, "device": "cpu", "threads": 1}
    table = workshop.file("table.tsv")
    with pytest.warns(UserWarning, match="is at chance: always predicting"):  # two steps teach nothing
        classifier = attnkit.finetune(tmp_path / "bert", "text-classification", table, tmp_path / "labels", **short)
    assert type(classifier) is attnkit.TextClassifier
    assert (
        type(attnkit.train_classifier(workshop.file("documents.tsv"), tmp_path / "han", **short))
        is attnkit.TextClassifier
    )
    coder = attnkit.train_autoencoder(workshop.file("vectors.npy"), tmp_path / "codes", **short)
    assert type(coder) is attnkit.AutoEncoder and coder.reads_vectors
    lines = attnkit.train_autoencoder(workshop.file("train.src"), tmp_path / "lines", **short)
    assert lines.embed(["1 2", ""]).shape[0] == 2 and len(lines.reconstruct(["1 2", ""])) == 2
    assert list(lines.reconstruct_stream(iter(["1 2", ""]))) == lines.reconstruct(["1 2", ""])
    rows = np.load(workshop.file("vectors.npy"))[:3]
    assert np.array_equal(list(coder.embed_stream(iter(rows))), coder.embed(rows))
    with pytest.raises(UsageError, match="reads lines"):
        lines.embed(np.zeros((1, 2)))
    vectors = attnkit.word2vec(text, tmp_path / "words", seed=1, settings={"dim": 8, "epochs": 1, "data.min_count": 1})
    assert type(vectors) is attnkit.Vectors and vectors.vector_size == 8


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_configuration_is_a_file_or_a_mapping(workshop: Any, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("model: {d_model: 16, n_heads: 2, d_ff: 32}\nlimits: {max_steps: 1}\n")
    tree = {"model": {"d_model": 16, "n_heads": 2, "d_ff": 32}, "limits": {"max_steps": 1}}
    sides = workshop.file("train.src"), workshop.file("train.tgt")
    for name, config in (("file", tmp_path / "run.yaml"), ("mapping", tree)):
        attnkit.train(*sides, tmp_path / name, config=config, preset="tiny", device="cpu", threads=1)
    one, other = (
        (tmp_path / name / "checkpoints/step-1/model.safetensors").read_bytes() for name in ("file", "mapping")
    )
    assert one == other


def test_wrong_arguments_are_named(workshop: Any, tmp_path: Path) -> None:
    sides = workshop.file("train.src"), workshop.file("train.tgt")
    with pytest.raises(UsageError, match="unknown argument 'epochs'"):
        attnkit.train(*sides, tmp_path / "run", epochs=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="unknown key"):
        attnkit.train(*sides, tmp_path / "run", settings={"model.width": 3})
    assert not (tmp_path / "run").exists()


def test_search_arguments_are_those_of_the_configuration() -> None:
    hints = get_type_hints(SearchArguments)
    fields = SearchConfig.model_fields
    assert {name: str(hint) for name, hint in hints.items()} == {
        name: str(field.annotation) for name, field in fields.items()
    }


CALLS = {
    "train": "train",
    "pretrain-mlm": "pretrain_mlm",
    "pretrain-clm": "pretrain_clm",
    "finetune": "finetune",
    "predict": "TextClassifier.predict TokenClassifier.predict QuestionAnswering.predict",
    "fill-mask": "MaskedLM.fill",
    "generate": "CausalLM.generate CausalLM.stream",
    "compare-lm": "compare_lm",
    "translate": "Translator.translate Translator.translate_document",
    "back-translate": "back_translate",
    "augment": "augment",
    "distill": "distill",
    "compare": "compare",
    "runs": "list_runs",
    "report": "report",
    "plan": "plan",
    "sweep": "sweep",
    "score": "Translator.score",
    "score-bleu": "score_bleu",
    "embed": "MaskedLM.embed CausalLM.embed AutoEncoder.embed AutoEncoder.reconstruct",
    "check": "check",
    "clean": "clean",
    "vocab": "vocab",
    "align": "align",
    "average": "average",
    "verify": "verify",
    "export": "export",
    "import": "import_run",
    "word2vec": "word2vec Vectors Word2Vec project cluster compare_context compare_one_hot evaluate_vectors phrases",
    "attend": "attend compare_alignments",
    "toy-corpus": "toy_corpus",
    "demo": "run_demo",
    "explain": "explain_mask explain_positions explain_pooling",
    "licenses": "licenses",
    "serve": "serve",
}
"""Command -> its calls."""


def test_every_command_has_a_call() -> None:
    assert CALLS.keys() == COMMANDS.keys()
    for names in CALLS.values():
        for name in names.split():
            found: Any = attnkit
            for part in name.split("."):
                found = getattr(found, part)
            assert found.__doc__, name


def test_names_of_the_library_are_those_that_types_know() -> None:
    tree = ast.parse(Path(str(attnkit.__file__)).read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.name
        for block in blocks
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed | {"__version__"} == set(attnkit.__all__) and typed == attnkit._MODULES.keys()


USER = """
from pathlib import Path

import attnkit

run: str = attnkit.Translator.load("run").translate(["a"], beam_size=2)[0].text
label: str = attnkit.TextClassifier.load("labels").predict(["a"])[0].label
value: float = attnkit.MaskedLM.load("bert").score(["a"])[0].log_prob
for piece in attnkit.CausalLM.load("gpt").stream("a", top_k=3):
    text: str = piece
translator = attnkit.train("a", "b", "run", max_epochs=2.0, settings={"model.d_model": 16})
shape: tuple[int, ...] = attnkit.MaskedLM.load("bert").embed(["a"]).shape
loaded = attnkit.load("run")
assert isinstance(loaded, attnkit.Translator)
loaded.translate(["a"])
attention = translator.translate(["a"], attention=True, quiet=True)[0].attention
weight: float = 0.0 if attention is None else attention[0][0][0]
page: str = attnkit.attend("run", ["a"]).page() + attnkit.project("vectors", quiet=True).page()
kinds: list[str] = [one.kind for one in attnkit.compare_alignments("run", ["a"], alignments=["dot"]).examples[0].maps]
losses: list[float] = attnkit.curves("run").losses
f1: float = attnkit.confusion(["a"], ["a"]).classes["a"].f1
files: dict[str, Path] = attnkit.toy_corpus("reverse", "toy")
attnkit.compare_alignments("run", ["a"], alignments=["dott"])  # error
attnkit.project("vectors", method="umap")  # error
translator.translate(["a"], beam=2)  # error
attnkit.train("a", "b", "run", epochs=2)  # error
"""


@pytest.mark.slow
def test_types_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(tmp_path / "user.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    wrong = sorted(int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line)
    expected = [number for number, line in enumerate(USER.splitlines(), 1) if line.endswith("# error")]
    assert wrong == expected, done.stdout
