"""Export of runs to CTranslate2."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.conversion.export_ctranslate2_language import CTranslate2Contents, language_contents
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.errors import RunError, UsageError, system_failure
from attnkit.formats.ctranslate2 import entry_names, make_spec, names_in, tokenizer_file
from attnkit.formats.exportable import Quantization, check_ctranslate2
from attnkit.io import atomic
from attnkit.io.plain_data import PlainResult
from attnkit.protocols import SPECIALS
from attnkit.tasks.translation.directions import first_direction
from attnkit.tasks.translation.loading import load_run
from attnkit.text.tags import source_prefix
from attnkit.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ExportResult(PlainResult):
    """An exported folder."""

    path: Path
    checkpoint: str
    n_bytes: int
    warnings: tuple[str, ...] = ()  #: damaged newer checkpoints, and parts that are not exported

    def to_dict(self) -> dict[str, Any]:
        """Return the result as ``attnkit export --json`` does."""
        return {"path": str(self.path), "checkpoint": self.checkpoint, "bytes": self.n_bytes}


def export_ctranslate2(
    run: Path, folder: Path, *, checkpoint: str | None = None, quantization: Quantization = "float32"
) -> ExportResult:
    """Export a run, its tokenizer and a usage README to CTranslate2.

    The run is a translator, a BERT, a model fine-tuned from one, or a GPT. The folder is created atomically. Raises
    ``RunError`` if the run is missing, damaged or not supported by CTranslate2, ``UsageError`` if ctranslate2 is not
    installed or the folder is not empty.
    """
    check_empty(folder)
    chosen, task, warnings = open_exportable(run, checkpoint, check_ctranslate2)
    weights = None if quantization == "float32" else quantization
    if task == "translation":
        made = _translator(run, chosen.name, weights)
    else:
        made = language_contents(run, chosen, task, weights)
    with new_folder(folder) as temporary:
        try:
            made.spec.save(str(temporary))
        except OSError as error:
            raise system_failure("write", folder, error) from error
        for name, content in made.files.items():
            atomic.write_new_file(temporary / name, content)
    return ExportResult(folder, chosen.name, n_bytes_of(folder), (*warnings, *made.warnings))


def _translator(run: Path, checkpoint: str, quantization: str | None) -> CTranslate2Contents:
    """Convert a translator that passed the check."""
    loaded = load_run(run, device="cpu", checkpoint=checkpoint)
    direction = first_direction(loaded)
    src, tgt = direction.src_tokenizer, direction.tgt_tokenizer
    files = tokenizer_files(src, tgt)
    listed = [names_in(raw) for raw in files.values()] if src.pieces is None else [entry_names(src), entry_names(tgt)]
    names = listed[0], listed[-1]
    arrays = {name: tensor.detach().numpy() for name, tensor in loaded.model.state_dict().items()}
    spec = make_spec(loaded.config.model, arrays, names, quantization)
    used = list(files)
    given = {"src_tokenizer": used[0], "tgt_tokenizer": used[-1]}
    use = (_USE if src.pieces is None else _USE_OF_PIECES).format(**given)
    if src.code_ids and tgt.code_ids:  # a language code before each text
        codes = [side.config.symbols[side.code_ids[0] - len(SPECIALS)] for side in (src, tgt)]
        use = _with_codes(use, *codes)
    warnings = []
    if before := source_prefix(src):
        use = use.replace("src.encode(line,", f"src.encode({json.dumps(before + ' ', ensure_ascii=False)} + line,")
        warnings.append(f"CTranslate2 does not put '{before}' before texts: do so, as README.md shows")
    card = _CARD.format(
        checkpoint=loaded.checkpoint,
        max_source=loaded.config.max_source,
        needs="tokenizers" if src.pieces is None else "sentencepiece",
        use=use,
    )
    return CTranslate2Contents(spec, {**files, "README.md": card.encode()}, tuple(warnings))


def tokenizer_files(src: Tokenizer, tgt: Tokenizer) -> dict[str, bytes]:
    """Return the tokenizers' files by name, source first; a shared one once."""
    if src.pieces is not None and tgt.pieces is not None:  # the files that were imported
        return {"source.spm": src.pieces.raw, "target.spm": tgt.pieces.raw}
    target = {} if tgt is src else {"tokenizer.target.json": tokenizer_file(tgt)}
    return {"tokenizer.json": tokenizer_file(src), **target}


def _with_codes(use: str, src_code: str, tgt_code: str) -> str:
    """Return the example with a language code before sources and translations."""
    one = "src.encode(line, out_type=str)"  # runs with codes are imported, with pieces
    use = use.replace(f"[{one} for", f'[["{src_code}", *{one}] for')
    options = ["tokens", f'target_prefix=[["{tgt_code}"]] * len(tokens)', *_OPTIONS.split(", ")]
    lines = "".join(f"        {option},\n" for option in options)
    use = use.replace(f"(tokens, {_OPTIONS})", f"(\n{lines}    )")
    return use.replace("(result.hypotheses[0])", "(result.hypotheses[0][1:])")


def open_exportable(
    run: Path, checkpoint: str | None, check: Callable[[Any], None]
) -> tuple[Checkpoint, str, list[str]]:
    """Return the checkpoint to export, its task and warnings.

    Raises ``RunError`` with the run in its place if it is missing or damaged, or does not pass the check.
    """
    chosen, warnings = RunFolder(run).checkpoint(checkpoint)
    config = read_run_config(chosen)
    try:
        check(config)
    except RunError as error:
        error.where = f"{run}: {error.where}"
        raise
    return chosen, config.task, warnings


def check_empty(folder: Path) -> None:
    """Raise ``UsageError`` unless the folder is missing or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("the output folder is not empty", where=str(folder), help="choose a new folder")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``folder`` when the block succeeds."""
    atomic.make_dirs(folder.absolute().parent)
    with atomic.atomic_dir(folder.absolute()) as temporary:
        yield temporary


def n_bytes_of(folder: Path) -> int:
    """Return the total size in bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


_OPTIONS = "beam_size=beam_size, max_decoding_length=256, max_batch_size=64"
_USE = """\
from ctranslate2 import Translator
from tokenizers import Tokenizer

src, tgt = (Tokenizer.from_file(name) for name in ("{src_tokenizer}", "{tgt_tokenizer}"))
translator = Translator(".", device="cpu", compute_type="float32")


def translate(lines: list[str], beam_size: int = 5) -> list[str]:
    tokens = [list(map(src.id_to_token, src.encode(line).ids)) for line in lines]
    results = translator.translate_batch(tokens, beam_size=beam_size, max_decoding_length=256, max_batch_size=64)
    return [tgt.decode([tgt.token_to_id(name) for name in result.hypotheses[0]]) for result in results]


print("\\n".join(translate(["A dog runs."])))"""
_USE_OF_PIECES = """\
from ctranslate2 import Translator
from sentencepiece import SentencePieceProcessor

src, tgt = (SentencePieceProcessor(model_file=name) for name in ("{src_tokenizer}", "{tgt_tokenizer}"))
translator = Translator(".", device="cpu", compute_type="float32")


def translate(lines: list[str], beam_size: int = 5) -> list[str]:
    tokens = [src.encode(line, out_type=str) for line in lines]
    results = translator.translate_batch(tokens, beam_size=beam_size, max_decoding_length=256, max_batch_size=64)
    # A piece that only the other file has is left as it is.
    return [tgt.decode_pieces(result.hypotheses[0]).replace("▁", " ").strip() for result in results]


print("\\n".join(translate(["A dog runs."])))"""
_CARD = """\
# A translation model for CTranslate2

Written by `attnkit export` from the checkpoint `{checkpoint}`. It needs neither attnkit nor torch:
`pip install ctranslate2 {needs}`. Run this inside the folder:

```python
{use}
```

`compute_type="int8"` is faster but changes some translations. `attnkit translate` also does the following: a blank line
stays blank, lines of several sentences and of more than {max_source} tokens are split and rejoined, and the maximum
length grows with the source (here it is 256 tokens).
"""
