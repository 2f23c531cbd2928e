"""``attnkit export``: conversion of a run to another system's format."""

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import CheckpointName, Json, RunPath


def command(
    run: RunPath,
    folder: Annotated[Path, Argument(help="Output folder.", metavar="DIR")],
    to: Annotated[Literal["ctranslate2", "huggingface", "marian", "peft", "attnkit"], Option(help="Target system.")],
    checkpoint: CheckpointName = None,
    adapter: Annotated[
        Path | None, Option(help="Run of an adapter to merge into RUN (attnkit only).", metavar="RUN")
    ] = None,
    quantization: Annotated[
        Literal["float32", "float16", "bfloat16", "int16", "int8"], Option(help="Weight type (CTranslate2 only).")
    ] = "float32",
    json: Json = False,
) -> None:
    """Export a run to another system's format, with a README that shows how to use it.

    CTranslate2 supports translation Transformers except those with ALiBi positions, BERT and models fine-tuned from it
    (features and poolers; not ALiBi, local layers or narrow embeddings), and GPT; float32 texts are identical.
    Hugging Face transformers supports BERT, models fine-tuned from BERT, GPT, and post-norm Transformers with
    sinusoidal positions (Marian). Marian's own format, which Bergamot reads too, also requires model.decoder_start
    zero. PEFT takes the adapters of models that transformers supports, and the new head of a fine-tuned encoder; all
    others take merged weights, and attnkit a run with them.

    \b
    Examples:
      attnkit export run --to ctranslate2 run-ct2
      attnkit export run --to ctranslate2 run-int8 --quantization int8
      attnkit export gpt --to ctranslate2 gpt-ct2
      attnkit export bert --to huggingface bert-hf
      attnkit export en-de --to marian en-de-marian
      attnkit export lora-run --to peft adapter
      attnkit export run --adapter lora-run --to attnkit merged
    """
    from attnkit.errors import UsageError
    from attnkit.progress import console

    if to != "ctranslate2" and quantization != "float32":
        what = "transformers converts weights at load time" if to == "huggingface" else "these weights are float32"
        raise UsageError("--quantization requires --to ctranslate2", help=f"remove --quantization: {what}")
    if to != "attnkit" and adapter is not None:
        help = "merge it first: attnkit export RUN --adapter RUN --to attnkit DIR"
        raise UsageError("--adapter requires --to attnkit", help=help)
    if to == "huggingface":
        from attnkit.conversion.export_huggingface import export_huggingface

        done = export_huggingface(run, folder, checkpoint=checkpoint)
    elif to == "marian":
        from attnkit.conversion.export_marian import export_marian

        done = export_marian(run, folder, checkpoint=checkpoint)
    elif to == "peft":
        from attnkit.conversion.adapters import export_peft

        done = export_peft(run, folder, checkpoint=checkpoint)
    elif to == "attnkit":
        from attnkit.conversion.adapters import merge_run

        done = merge_run(run, folder, checkpoint=checkpoint, adapter=adapter)
    else:
        from attnkit.conversion.export_ctranslate2 import export_ctranslate2

        done = export_ctranslate2(run, folder, checkpoint=checkpoint, quantization=quantization)
    for text in done.warnings:
        console.warn(text)
    if json:
        console.result(dumps(done.to_dict()))
    else:
        console.result(f"wrote {done.checkpoint} to {done.path} ({done.n_bytes / 1e6:.1f} MB)")
        console.info(f"{done.path / 'README.md'} shows how to use it")
