"""Runs with more entries than the run that they begin from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.errors import UsageError
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.task import TrainRequest, train
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.extension import row_origins
from attnkit.text.lines import read_lines

STILL = {"optimization__learning_rate": 1e-30, "limits__max_steps": 1}
SEPARATE = {"joint_vocabulary": False, "model__tie_embeddings": "none"}


@pytest.fixture(scope="module", params=["transformer", "rnn", "separate"])
def base(request: pytest.FixtureRequest, workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    run = tmp_path_factory.mktemp("base") / "run"
    kind, more = ("transformer", SEPARATE) if request.param == "separate" else (request.param, {})
    workshop.train(workshop.configure(kind, limits__max_steps=3, vocabulary__kind="bpe", **more), run)
    return request.param, run


def configure(workshop: Any, name: str, **changes: Any) -> Any:
    kind, more = ("transformer", SEPARATE) if name == "separate" else (name, {})
    return workshop.configure(kind, vocabulary__kind="bpe", **{**more, **changes})


def test_new_rows_are_means_and_nothing_else_changes(workshop: Any, base: tuple[str, Path], tmp_path: Path) -> None:
    name, source = base
    files = [] if name == "separate" else [str(workshop.file("text.txt"))]
    extension = {"symbols": ["<2xx>", "<tag>"], "files": files, "entries": 20}
    workshop.train(configure(workshop, name, extension=extension, **STILL), tmp_path / "run", init_from=source)
    old, new = load_run(source, device="cpu"), load_run(tmp_path / "run", device="cpu")
    assert new.src_tokenizer.token_id("<2xx>") is not None and new.tgt_tokenizer.token_id("<tag>") is not None
    assert new.src_tokenizer.n_words == old.src_tokenizer.n_words + (2 if name == "separate" else 22)
    given = {name: tensor.detach().numpy() for name, tensor in old.model.state_dict().items()}
    sides = {"src": row_origins(old.src_tokenizer, new.src_tokenizer)}
    sides["tgt"] = row_origins(old.tgt_tokenizer, new.tgt_tokenizer)
    n_rows = 0
    for key, tensor in new.model.state_dict().items():
        found = tensor.detach().numpy()
        if "embedding" not in key and not key.startswith("output."):
            assert np.array_equal(found, given[key]), key
            continue
        side = "src" if key.startswith(("encoder.", "src_")) else "tgt"
        for row, ids in enumerate(sides[side]):
            np.testing.assert_allclose(found[row], np.mean([given[key][id] for id in ids], 0), rtol=1e-5, atol=1e-7)
        n_rows += 1
    assert n_rows >= 3  # embeddings, output weight and bias
    lines = list(read_lines(workshop.file("test.src")))[:8]
    texts = [load_translator([run], device="cpu").translate(lines) for run in (source, tmp_path / "run")]
    assert len(texts[1]) == 8


def test_a_resumed_run_is_not_extended_twice(workshop: Any, base: tuple[str, Path], tmp_path: Path) -> None:
    name, source = base
    config = configure(workshop, name, extension={"symbols": ["<2xx>"]}, limits__max_steps=6)
    workshop.train(config, tmp_path / "whole", init_from=source)
    run = tmp_path / "run"
    from attnkit.errors import StoppedError

    with pytest.raises(StoppedError):
        list(train(TrainRequest(config, run, init_from=source, stop=iter([False, False, True]).__next__)))
    shutil.rmtree(run / "data")
    workshop.train(config, run)
    one, other = (
        safetensors.numpy.load(RunFolder(path).checkpoint("last")[0].read("model.safetensors"))
        for path in (tmp_path / "whole", run)
    )
    assert one.keys() == other.keys() and all(np.array_equal(array, other[key]) for key, array in one.items())
    assert (run / "tokenizer.json").read_bytes() == (tmp_path / "whole/tokenizer.json").read_bytes()
    workshop.train(configure(workshop, name, **STILL), tmp_path / "next", init_from=run)
    assert load_run(tmp_path / "next").src_tokenizer.token_id("<2xx>") is not None
    assert torch.isfinite(next(load_run(tmp_path / "next").model.parameters())).all()


def test_refusals(workshop: Any, base: tuple[str, Path], tmp_path: Path) -> None:
    name, source = base
    with pytest.raises(UsageError, match="an extension needs a vocabulary to extend"):
        workshop.train(configure(workshop, name, extension={"symbols": ["<x>"]}), tmp_path / "run")
    with pytest.raises(UsageError, match="adapters do not train the rows of new entries"):
        configure(workshop, name, extension={"symbols": ["<x>"]}, adapter__rank=2)
    with pytest.raises(UsageError, match="name symbols or files to add"):
        configure(workshop, name, extension={"entries": 5})
    if name == "separate":
        with pytest.raises(UsageError, match=r"extension\.files needs a joint vocabulary"):
            configure(workshop, name, extension={"files": ["a"]})
    with pytest.raises(UsageError, match="white space"):
        config = configure(workshop, name, extension={"symbols": ["two words"]}, **STILL)
        workshop.train(config, tmp_path / "run", init_from=source)
