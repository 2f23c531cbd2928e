"""Damaged adapters, attnkit's own and PEFT's, for ``fuzz_loaders``."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from fuzz_layouts import CODED
from mutations import mutate_json, mutate_safetensors, resign

from attnkit.checkpoints.adapters import ADAPTER, DESCRIPTION
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.conversion.adapters import CONFIG, TENSORS, export_peft, import_peft, merge_run
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.engine.loading import load_model
from attnkit.formats.huggingface.weights import opened
from attnkit.tasks.translation.translator import load_translator

TEXT = ["0 1 2 3"]
BASE, ADAPTED, PEFT = "adapter-base", "adapter-run", "adapter-peft"  #: good folders
TUNED = "text-classification"  #: task of a fine-tuned encoder, and name of its good folders
LAYOUTS = ("m2m100", "mbart", "t5", "gpt2", "llama")  #: layouts of the hub whose adapters are damaged
KINDS = (TUNED, *LAYOUTS)
_TARGETS = re.compile(r".*\.(q_proj|v_proj|down_proj|fc1|q|k|v|wi_1|wo|c_attn|c_fc)")
"""Modules with adapters, as PEFT names them."""


def good(place: Path, part: str, kind: str) -> Path:
    """Return a good folder: ``part`` is that of the base, of its adapter, or of the adapter in PEFT's format."""
    return place / f"{part}-{kind}"


def make_adapters(place: Path) -> None:
    """Import the good folders of the hub, and write an adapter of each in PEFT's format."""
    for kind in LAYOUTS:
        hub, folder = place / f"hub-{kind}", good(place, PEFT, kind)
        src, tgt = CODED.get(kind, (None, None))
        import_huggingface(hub, good(place, BASE, kind), src_lang=src, tgt_lang=tgt)
        tensors: dict[str, torch.Tensor] = {}
        for path in sorted(hub.glob("*.safetensors")):
            with opened(path) as file:
                for name, entry in file.entries.items():
                    module = name.removesuffix(".weight")
                    if name.endswith(".weight") and _TARGETS.fullmatch(module):
                        rows, columns = entry.shape[::-1] if kind == "gpt2" else entry.shape
                        near = f"base_model.model.{module}.lora"
                        tensors |= {f"{near}_A.weight": torch.randn(2, columns)}
                        tensors |= {f"{near}_B.weight": torch.randn(rows, 2)}
        assert tensors
        folder.mkdir()
        safetensors.torch.save_file(tensors, folder / TENSORS)
        tree = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": "all-linear", "bias": "none"}
        (folder / CONFIG).write_text(json.dumps({**tree, "rank_pattern": {}, "alpha_pattern": {}}))


def import_kind(kind: str, place: Path, work: Path, source: random.Random | None) -> None:
    """Import a folder of PEFT for a base of a kind; use, merge and export the run if that succeeds.

    The folder is damaged, if there is a source of what to change.
    """
    folder = _copied(good(place, PEFT, kind), work)
    if source is not None:
        _damage(folder, CONFIG, TENSORS, source)
    run = import_peft(folder, good(place, BASE, kind), work / "run").path
    _use(kind, run)
    merge_run(run, work / "merged")
    export_peft(run, work / "peft")


def reader(kind: str, damaged: bool) -> Callable[[Any, random.Random], None]:
    """Return what reads damaged or good adapters of a kind, given the ``Base`` of ``fuzz_loaders``."""
    return lambda base, source: import_kind(kind, base.folder.parent, base.folder, source if damaged else None)


def use_damaged_head(place: Path, work: Path, source: random.Random) -> None:
    """Use, merge or export the run of a fine-tuned encoder with a damaged adapter and head."""
    run = _copied(good(place, ADAPTED, TUNED), work)
    newest = RunFolder(run).checkpoint("last")[0].path
    _damage(newest, DESCRIPTION, ADAPTER, source)
    resign(newest)
    kind = source.randrange(3)
    if kind == 0:
        _use(TUNED, run, "last")
    elif kind == 1:
        export_peft(run, work / "peft", checkpoint="last")
    else:
        merge_run(run, work / "merged", checkpoint="last")


def _use(kind: str, run: Path, checkpoint: str | None = None) -> None:
    """Compute something with a run."""
    if kind == TUNED:
        model = load_model(run, TUNED, device="cpu", checkpoint=checkpoint).model
        with torch.no_grad():
            model(torch.tensor([[4, 5, 6]]), torch.ones(1, 3, dtype=torch.bool), None)
    elif kind in ("gpt2", "llama"):
        load_model(run, "clm", device="cpu", checkpoint=checkpoint)
    else:
        load_translator([run], device="cpu", engine="torch").translate(TEXT, max_length=3)


def import_damaged(good: Path, work: Path, source: random.Random) -> None:
    """Import a damaged folder of PEFT, and translate with it if that succeeds."""
    folder = _copied(good / PEFT, work)
    _damage(folder, CONFIG, TENSORS, source)
    run = import_peft(folder, good / BASE, work / "run").path
    load_translator([run], device="cpu", engine="torch").translate(TEXT, max_length=3)


def use_damaged(good: Path, work: Path, source: random.Random) -> None:
    """Use a run whose adapter is damaged in one of the ways that runs with adapters are used."""
    run = _copied(good / ADAPTED, work)
    newest = RunFolder(run).checkpoint("last")[0].path
    _damage(newest, DESCRIPTION, ADAPTER, source)
    resign(newest)
    kind = source.randrange(4)
    if kind == 0:
        load_translator([run], device="cpu", checkpoint="last", engine="torch").translate(TEXT, max_length=3)
    elif kind == 1:
        load_translator([good / BASE], device="cpu", adapter=run, engine="torch").translate(TEXT, max_length=3)
    elif kind == 2:
        export_peft(run, work / "peft", checkpoint="last")
    else:
        merge_run(run, work / "merged", checkpoint="last")


def _copied(folder: Path, work: Path) -> Path:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    return Path(shutil.copytree(folder, work / "good"))


def _damage(folder: Path, described: str, tensors: str, source: random.Random) -> None:
    """Damage the description, the tensors, or both."""
    kind = source.randrange(3)
    for number, (name, mutate) in enumerate(((described, mutate_json), (tensors, mutate_safetensors))):
        if kind in (number, 2):
            (folder / name).write_bytes(mutate((folder / name).read_bytes(), source))
