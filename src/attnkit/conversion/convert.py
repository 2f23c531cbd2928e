"""Write a run in another system's format: the folder appears complete or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnkit.errors import UsageError, system_failure
from attnkit.formats.ctranslate2 import Names, make_spec, unique_names
from attnkit.io import atomic
from attnkit.tasks.translation.loading import LoadedRun, load_run
from attnkit.text.tokenizer import Tokenizer

Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8"]


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    checkpoint: str
    n_bytes: int
    warnings: tuple[str, ...] = ()
    """What was wrong with newer checkpoints that were passed over."""


def export_ctranslate2(
    run: Path, folder: Path, *, checkpoint: str | None = None, quantization: Quantization = "float32"
) -> Exported:
    """Write a Transformer run as a CTranslate2 model, with the tokenizer and a README that shows how to use it.

    Raises:
        RunError: the run is missing or damaged, or CTranslate2 has no such model.
        UsageError: ctranslate2 is not installed, or the folder is not empty.
    """
    check_empty(folder)
    loaded = load_run(run, device="cpu", checkpoint=checkpoint)
    src = entry_names(loaded.src_tokenizer)
    joint = loaded.tgt_tokenizer is loaded.src_tokenizer
    names = Names(src, src if joint else entry_names(loaded.tgt_tokenizer))
    arrays = {name: tensor.detach().numpy() for name, tensor in loaded.model.state_dict().items()}
    spec = make_spec(loaded.config.model, arrays, names, None if quantization == "float32" else quantization)
    atomic.make_dirs(folder.absolute().parent)
    with atomic.atomic_dir(folder.absolute()) as temporary:
        try:
            spec.save(str(temporary))
        except OSError as error:
            raise system_failure("write", folder, error) from error
        atomic.write_new_file(temporary / "tokenizer.json", loaded.src_tokenizer.to_json().encode())
        if not joint:
            atomic.write_new_file(temporary / "tokenizer.target.json", loaded.tgt_tokenizer.to_json().encode())
        # CTranslate2 writes one list for both sides where they are equal, even of two vocabularies.
        shared = list(names.src) == list(names.tgt)
        atomic.write_new_file(temporary / "README.md", card(loaded, shared=shared).encode())
    n_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return Exported(folder, loaded.checkpoint, n_bytes, loaded.warnings)


def check_empty(folder: Path) -> None:
    """Raise ``UsageError`` unless a folder can be made there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("there is something here already", where=str(folder), help="name a new folder")


def entry_names(tokenizer: Tokenizer) -> list[str]:
    """Return a name for each id of a vocabulary, all different."""
    return unique_names(tokenizer.tokens(range(tokenizer.vocab_size)))


def card(run: LoadedRun, *, shared: bool) -> str:
    """Return the README of an exported folder: from text to text in a dozen lines of Python."""
    src_names, tgt_names = ("shared", "shared") if shared else ("source", "target")
    tgt_tokenizer = "tokenizer.json" if run.tgt_tokenizer is run.src_tokenizer else "tokenizer.target.json"
    return _CARD.format(
        checkpoint=run.checkpoint,
        src_names=src_names,
        tgt_names=tgt_names,
        tgt_tokenizer=tgt_tokenizer,
        max_source=run.config.max_source,
    )


_CARD = """\
# A translation model for CTranslate2

Written by `attnkit export` from the checkpoint `{checkpoint}`. It needs `pip install "attnkit[ctranslate2]"`, for the
tokenizer and the translator. CTranslate2 knows an entry of the vocabulary by its name, in the order of the ids; names
are for people and unique, the tokenizer alone says which text an id represents. Run this inside the folder:

```python
import json
from pathlib import Path

import ctranslate2

from attnkit.text.tokenizer import load

folder = Path(".")
src, tgt = load(folder / "tokenizer.json"), load(folder / "{tgt_tokenizer}")
src_names = json.loads((folder / "{src_names}_vocabulary.json").read_text(encoding="utf-8"))
tgt_names = json.loads((folder / "{tgt_names}_vocabulary.json").read_text(encoding="utf-8"))
tgt_ids = {{name: id for id, name in enumerate(tgt_names)}}
translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")


def translate(lines: list[str], beam_size: int = 5) -> list[str]:
    tokens = [[src_names[id] for id in ids] for ids in src.encode(lines)]
    results = translator.translate_batch(
        tokens, beam_size=beam_size, length_penalty=1, max_decoding_length=256, max_batch_size=64
    )
    return tgt.decode([[tgt_ids[name] for name in result.hypotheses[0]] for result in results])


print("\\n".join(translate(["A dog runs."])))
```

`compute_type="int8"` is faster and not the same text on every line. What `attnkit translate` does besides: a blank line
stays blank, lines of more than {max_source} tokens are split and rejoined, and the greatest length grows with the
source (here it is 256 tokens).
"""
