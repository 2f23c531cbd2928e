"""Whatever is damaged in a file that attnkit reads, only documented errors come out of what reads it.

500 seeded mutations a reader under the slow mark (``pytest -m slow tests/durability/test_fuzz.py``), 20 by default.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fuzz_adapters import ADAPTED, BASE, KINDS, PEFT, TUNED, good
from fuzz_layouts import ENCODERS

from attnkit.conversion.adapters import export_peft, merge_run
from attnkit.engine.resolve import init_layer, resolve

if TYPE_CHECKING:
    from tests.conftest import Workshop

LOADERS = ("configuration", "vocabulary", "manifest", "state", "safetensors", "text", "folder")
LOADERS += ("tsv", "vectors", "lexicon", "sentencepiece", "pickled", "peft", "adapter", "llama", "tables")
LOADERS += ("marian", "m2m100", "nllb", "mbart", "t5", "mistral", "gpt2")  # whole folders
LOADERS += ("head", *(f"peft:{kind}" for kind in KINDS))
CAN_MAKE_ENCODERS = find_spec("transformers") is not None and find_spec("sentencepiece") is not None
LOADERS += ENCODERS if CAN_MAKE_ENCODERS else ()
Fuzz = Callable[[str, int, int], dict[str, Any]]


@pytest.fixture(scope="module")
def fuzz(
    trained: Path, pretrained: Path, workshop: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fuzz]:
    script = Path(__file__).with_name("fuzz_loaders.py")
    place = tmp_path_factory.mktemp("fuzz")
    base, run = place / BASE, place / ADAPTED
    marian = {"model__positions": "sinusoidal", "model__norm": "post"}
    workshop.train(workshop.configure(**marian, limits__max_steps=1), base)
    workshop.train(workshop.configure(**marian, adapter__rank=2, limits__max_steps=2), run, init_from=base)
    export_peft(run, place / PEFT)
    make_tuned(workshop, pretrained, place)
    if CAN_MAKE_ENCODERS:
        make_encoders(place)
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        [sys.executable, str(script), str(trained), str(workshop.corpus), str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **alone},
        text=True,
    )

    def ask(loader: str, first: int, count: int) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{loader} {first} {count}\n")
        process.stdin.flush()
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    yield ask
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=60) == 0


def make_tuned(workshop: Workshop, pretrained: Path, place: Path) -> None:
    """Fine-tune a classifier's adapters and head; its base in the other format is the run with merged weights."""
    sets = ["device=cpu", "precision=float32", "threads=1", "limits.max_steps=2", "adapter.rank=2"]
    flags = {"task": TUNED, "data.files": [str(workshop.file("table.tsv"))]}
    config = resolve(flags, sets=sets, preset_name="tiny", fixed=init_layer(pretrained)).config
    run = good(place, ADAPTED, TUNED)
    workshop.train(config, run, init_from=pretrained)
    export_peft(run, good(place, PEFT, TUNED))
    merge_run(run, good(place, BASE, TUNED))


def make_encoders(place: Path) -> None:
    """Write a good folder of each encoder of transformers."""
    folders = str(Path(__file__).parents[1] / "formats")
    if folders not in sys.path:
        sys.path.append(folders)
    import hub_encoders

    assert set(hub_encoders.ENCODERS) == set(ENCODERS)
    for kind, make in hub_encoders.ENCODERS.items():
        make(place / f"hub-{kind}")


def judge(found: dict[str, Any], count: int) -> None:
    assert not found["wrong"], "\n".join(f"seed {seed}: {outcome}" for seed, outcome in found["wrong"].items())
    assert sum(found["outcomes"].values()) == count
    assert set(found["outcomes"]) - {"accepted"}, "nothing was refused: the damage does not reach the reader"


@pytest.mark.parametrize("loader", LOADERS)
def test_twenty_mutations_give_documented_errors(fuzz: Fuzz, loader: str) -> None:
    judge(fuzz(loader, 0, 20), 20)


@pytest.mark.parametrize("kind", KINDS)
def test_good_adapters_are_accepted(fuzz: Fuzz, kind: str) -> None:
    assert fuzz(f"good:{kind}", 0, 1)["outcomes"] == {"accepted": 1}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 500, 250))
@pytest.mark.parametrize("loader", LOADERS)
def test_two_thousand_mutations_give_documented_errors(fuzz: Fuzz, loader: str, first: int) -> None:
    found = fuzz(loader, first, 250)
    print(loader, first, found["outcomes"])
    judge(found, 250)
