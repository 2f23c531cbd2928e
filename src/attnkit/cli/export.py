"""``attnkit export``: conversion of a run to another system's format."""

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import CheckpointName, Json, RunPath


def command(
    run: RunPath,
    folder: Annotated[Path, Argument(help="Output folder.", metavar="DIR")],
    to: Annotated[Literal["ctranslate2", "huggingface"], Option(help="Target system.")],
    checkpoint: CheckpointName = None,
    quantization: Annotated[
        Literal["float32", "float16", "bfloat16", "int16", "int8"], Option(help="Weight type (CTranslate2 only).")
    ] = "float32",
    json: Json = False,
) -> None:
    """Export a run to another system's format, with a README that shows how to use it.

    CTranslate2 supports all Transformers except those with ALiBi positions; its float32 translations are identical.
    Hugging Face transformers supports BERT, models fine-tuned from BERT, GPT, and post-norm Transformers with
    sinusoidal positions (Marian).

    \b
    Examples:
      attnkit export run --to ctranslate2 run-ct2
      attnkit export run --to ctranslate2 run-int8 --quantization int8
      attnkit export bert --to huggingface bert-hf
    """
    from attnkit.errors import UsageError
    from attnkit.progress import console

    if to == "huggingface":
        from attnkit.conversion.export_huggingface import export_huggingface

        if quantization != "float32":
            help = "remove --quantization: transformers converts weights at load time"
            raise UsageError("--quantization requires --to ctranslate2", help=help)
        done = export_huggingface(run, folder, checkpoint=checkpoint)
    else:
        from attnkit.conversion.export_ctranslate2 import export_ctranslate2

        done = export_ctranslate2(run, folder, checkpoint=checkpoint, quantization=quantization)
    for text in done.warnings:
        console.warn(text)
    if json:
        console.result(dumps({"path": str(done.path), "checkpoint": done.checkpoint, "bytes": done.n_bytes}))
    else:
        console.result(f"wrote {done.checkpoint} to {done.path} ({done.n_bytes / 1e6:.1f} MB)")
        console.info(f"{done.path / 'README.md'} shows how to use it")
