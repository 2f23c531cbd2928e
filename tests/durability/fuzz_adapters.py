"""Damaged adapters, attnkit's own and PEFT's, for ``fuzz_loaders``."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from mutations import mutate_json, mutate_safetensors, resign

from attnkit.checkpoints.adapters import ADAPTER, DESCRIPTION
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.conversion.adapters import CONFIG, TENSORS, export_peft, import_peft, merge_run
from attnkit.tasks.translation.translator import load_translator

TEXT = ["0 1 2 3"]
BASE, ADAPTED, PEFT = "adapter-base", "adapter-run", "adapter-peft"  #: good folders


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
