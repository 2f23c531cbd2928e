"""Checkpoints that a stranger has made, with a manifest that vouches for them: no code runs and nothing grows.

Each case ends within ten seconds of work and a gigabyte, with a documented exit code and at most three lines said.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from mutations import resign, vouch
from stage import Case, Stage, make, perform

from attnkit.errors import UsageError
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.task import TrainRequest, train

if TYPE_CHECKING:
    from tests.conftest import Workshop

    from attnkit.tasks.translation.config import TranslationConfig

NEWEST = "run/checkpoints/step-12/"
UNFIT, SENSELESS, UNUSABLE = "weights do not fit the configuration", "invalid ", "cannot be used"
BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 8)}]\n" for i in range(12)
)


def weights(change: Callable[[dict[str, Any]], Any], file: str = "model.safetensors") -> Callable[[Stage], None]:
    """Return what changes the header of a file of tensors, which keeps its size; the manifest vouches for it."""

    def craft(stage: Stage) -> None:
        raw = (stage.newest / file).read_bytes()
        n_header = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + n_header])
        text = json.dumps(change(header) or header, separators=(",", ":")).encode().ljust(n_header)
        stage.sign(file, len(text).to_bytes(8, "little") + text + raw[8 + n_header :])

    return craft


def first(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return what changes one field of the first tensor."""
    return lambda header: next(iter(header.values())).update({field: value})


def length(n: int) -> Callable[[Stage], None]:
    """Return what changes the length that a file of tensors gives its header."""
    file = "model.safetensors"
    return lambda stage: stage.sign(file, n.to_bytes(8, "little") + (stage.newest / file).read_bytes()[8:])


def nan(stage: Stage) -> None:
    raw = (stage.newest / "model.safetensors").read_bytes()
    stage.sign("model.safetensors", raw[:-4] + np.float32("nan").tobytes())


def configured(old: str, new: str) -> Callable[[Stage], None]:
    """Return what changes the configuration of the newest checkpoint, signed."""

    def craft(stage: Stage) -> None:
        text = (stage.newest / "config.yaml").read_text()
        assert old in text
        stage.sign("config.yaml", text.replace(old, new))

    return craft


def counters(**changes: Any) -> Callable[[Stage], None]:
    """Return what changes counters of the newest checkpoint, signed."""
    return lambda stage: stage.sign_json("state.json", lambda tree: tree["counters"].update(changes))


def listed(change: Callable[[dict[str, Any]], Any]) -> Callable[[Stage], None]:
    """Return what changes the manifest and not its checksum."""
    return lambda stage: stage.edit_json(NEWEST + "manifest.json", change)


def absurd(stage: Stage) -> None:
    """Let the configuration ask for 200 GB and the manifest vouch for a file of that size, which is a hole."""
    configured("d_model: 16", "d_model: 65536")(stage)
    stage.sparse(NEWEST + "model.safetensors")
    vouch(stage.newest, "model.safetensors", 10 << 30)


def absurd_start(stage: Stage) -> None:
    configured("d_model: 16", "d_model: 65536")(stage)
    stage.remove("run/best")


def vouched(file: str) -> Callable[[Stage], None]:
    def craft(stage: Stage) -> None:
        stage.sparse(NEWEST + file)
        vouch(stage.newest, file, 10 << 30)

    return craft


CASES = [
    *(
        Case(f"pickle as {file}", lambda s, f=file: s.sign(f, s.pickled), "train", 4)
        for file in ("config.yaml", "model.safetensors", "optimizer.safetensors", "state.json")
    ),
    Case("pickle as weights", lambda s: s.sign("model.safetensors", s.pickled), "translate last", 4, UNFIT),
    Case(
        "pickle as vocabulary",
        lambda s: s.sign("tokenizer.json", s.pickled),
        "translate last",
        4,
        "not a valid attnkit",
    ),
    Case("pickle as manifest", lambda s: s.put(NEWEST + "manifest.json", s.pickled), "translate last", 0, UNUSABLE),
    Case(
        "a tag in the configuration",
        configured("seed: 1", "seed: !!python/object/apply:os.system ['exit 1']"),
        "translate last",
        4,
        SENSELESS,
    ),
    Case("aliases without end", lambda s: s.sign("config.yaml", BOMB), "translate last", 4, SENSELESS),
    Case("5,000 brackets", lambda s: s.sign("config.yaml", "[" * 5000), "score 12", 4, SENSELESS),
    Case(
        "a configuration that is a list", lambda s: s.sign("config.yaml", "- 1"), "translate last", 4, "not a mapping"
    ),
    Case("an empty configuration", lambda s: (s.sign("config.yaml", ""), s.remove("run/best")), "init", 4, "mapping"),
    Case("a configuration in Latin-1", lambda s: s.sign("config.yaml", b"a: \xe9"), "translate last", 4, "not UTF-8"),
    Case("a configuration of 2 MB", lambda s: s.sign("config.yaml", "#" * (2 << 20)), "translate last", 4, "more than"),
    Case("a model of 10^9", configured("d_model: 16", "d_model: 1000000000"), "translate last", 4, "d_model"),
    Case("a million layers", configured("encoder_layers: 1", "encoder_layers: 1000000"), "translate last", 4),
    Case("a model of 200 GB", configured("d_model: 16", "d_model: 65536"), "translate last", 4, UNFIT),
    Case("a model of 200 GB to average", configured("d_model: 16", "d_model: 65536"), "average", 4, UNFIT),
    Case("a model of 200 GB to export", absurd, "export 12", 4),
    Case("256 wide layers", configured("encoder_layers: 1", "encoder_layers: 256"), "translate last", 4, UNFIT),
    Case(
        "two vocabularies for one",
        lambda s: (s.put(NEWEST + "tokenizer.target.json", "{}"), resign(s.newest)),
        "translate last",
        4,
        "not a valid attnkit vocabulary",
    ),
    *(Case(f"a header of {n} bytes", length(n), "translate last", 4, UNFIT) for n in (0, 1, 10**6, 1 << 40, 2**64 - 1)),
    Case("a shape of 2^124", weights(first("shape", [2**62, 2**62])), "translate last", 4, UNFIT),
    Case("a shape below zero", weights(first("shape", [-1, -64])), "translate last", 4, UNFIT),
    Case("a shape of words", weights(first("shape", "ab")), "translate last", 4, UNFIT),
    Case("an unknown dtype", weights(first("dtype", "OBJ")), "translate last", 4, UNFIT),
    Case("another dtype", weights(first("dtype", "I32")), "translate last", 4, UNFIT),
    Case("tensors that overlap", weights(first("data_offsets", [4, 8])), "translate last", 4, UNFIT),
    Case("offsets below zero", weights(first("data_offsets", [-8, 8])), "translate last", 4, UNFIT),
    Case("offsets beyond", weights(first("data_offsets", [2**63, 2**63 + 64])), "translate last", 4, UNFIT),
    Case("a missing tensor", weights(lambda header: header.pop(next(iter(header)))), "translate last", 4, UNFIT),
    Case(
        "metadata",
        weights(lambda header: {**dict(list(header.items())[1:]), "__metadata__": {}}),
        "translate last",
        4,
        UNFIT,
    ),
    Case("a list for a header", weights(lambda header: [1]), "translate last", 4, UNFIT),
    Case("NaN among weights", nan, "translate last", 4, "not finite"),
    Case("overlapping moments", weights(first("data_offsets", [4, 8]), "optimizer.safetensors"), "train", 4, UNFIT),
    Case("no moments", lambda s: (s.remove(NEWEST + "optimizer.safetensors"), resign(s.newest)), "train", 4),
    Case("an empty state", lambda s: s.sign("state.json", "{}"), "train", 4, SENSELESS),
    Case("a state that is a list", lambda s: s.sign("state.json", "[]"), "average", 4, SENSELESS),
    Case("a state of brackets", lambda s: s.sign("state.json", "[" * 100_000), "train", 4, SENSELESS),
    Case("an epoch beyond all numbers", lambda s: s.sign("state.json", '{"counters":{"epoch":1e999}}'), "train", 4),
    Case("a text for a step", counters(step="12"), "train", 4, "counters.step"),
    Case("another step", counters(step=13), "train", 4, "counters.step is not 12"),
    Case("a place that is not there", counters(position={"epoch": 1, "index": 10**12}), "train", 4, "batches"),
    Case("a place without a name", counters(position={}), "train", 4, "position"),
    Case("10^300 updates", counters(updates=10**300), "train", 4, "updates"),
    Case("scores of no step", lambda s: s.sign_json("state.json", lambda t: {**t, "scores": {"../x": {}}}), "train", 4),
    Case(
        "a manifest with ../",
        listed(lambda t: t["files"].update({"../../x": {"size": 1, "sha256": "0" * 64}})),
        "translate last",
        0,
        "is not a valid manifest",
    ),
    Case(
        "a manifest of 10^18", listed(lambda t: t["files"]["config.yaml"].update(size=10**18)), "score 12", 4, UNUSABLE
    ),
    Case(
        "a manifest of a megabyte",
        lambda s: s.put(NEWEST + "manifest.json", b"[" * (2 << 20)),
        "translate last",
        0,
        "is too large",
    ),
    Case("a manifest: a pipe", lambda s: s.pipe(NEWEST + "manifest.json"), "translate last", 0, "not a regular file"),
    Case("weights of 10 GB", lambda s: s.sparse(NEWEST + "model.safetensors"), "train", 0, UNUSABLE),
    Case("weights of 10 GB, signed", vouched("model.safetensors"), "translate 12", 4, UNFIT),
    Case("a configuration of 10 GB, signed", vouched("config.yaml"), "translate 12", 4, SENSELESS),
    Case("a vocabulary of 10 GB, signed", vouched("tokenizer.json"), "score 12", 4, SENSELESS),
    Case("a model of 200 GB to start with", absurd_start, "init", 4, UNFIT),
]
# Compiled loops and torch read weights by themselves.
CASES += [
    case._replace(name=f"{case.name}, by torch", command="translate by torch")
    for case in CASES
    if case.command == "translate last" and case.said in (UNFIT, "not finite")
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_crafted_checkpoint_is_harmless(
    case: Case, attnkit: Any, workshop: Workshop, trained: Path, tmp_path: Path
) -> None:
    go_on = workshop.arguments("transformer", tmp_path / "run", limits__max_steps=13)
    perform(case, attnkit, make(tmp_path, trained, go_on))


def shards(config: TranslationConfig, n: int, src: str, tgt: str) -> TranslationConfig:
    """Return a configuration that trains on the same two files many times over."""
    data = config.data.model_copy(update={"src": (src,) * n, "tgt": (tgt,) * n})
    return config.model_copy(update={"data": data})


def test_a_configuration_that_no_checkpoint_could_hold_is_refused_at_the_start(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run = workshop.configure(), tmp_path / "run"
    with pytest.raises(UsageError, match=r"takes 2,[0-9,]+ bytes, more than 1,048,576") as caught:
        list(train(TrainRequest(shards(config, 1300, "x" * 900, "y" * 900), run)))
    assert "concatenate the text files" in str(caught.value.help)
    monkeypatch.setattr("attnkit.config.plain.MAX_NODES", 20)
    with pytest.raises(UsageError, match=r"could not be read back: .* more than 20 values"):
        list(train(TrainRequest(workshop.configure(seed=211), run)))  # whose text nobody has parsed before
    assert not run.exists()


def test_a_run_on_1300_files_with_long_names_can_be_read_again(workshop: Workshop, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 50)
    folder.mkdir()
    for side in ("src", "tgt"):
        (folder / side).write_text("1 2 3\n")
    config = shards(workshop.configure(limits__max_steps=1), 1300, str(folder / "src"), str(folder / "tgt"))
    workshop.train(config, tmp_path / "run")
    assert (tmp_path / "run" / "config.yaml").stat().st_size > 1 << 18
    assert load_run(tmp_path / "run", device="cpu").config == config
