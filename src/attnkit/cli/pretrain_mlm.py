"""``attnkit pretrain-mlm``: pretraining of an encoder (BERT) on raw text."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from attnkit.cli import options
from attnkit.cli._train import TrainingOptions, run_training, with_training_options


@with_training_options
def command(
    files: options.Text = None,
    output: options.RunOutput = Path("run"),
    valid: options.ValidText = None,
    preset: options.LanguageModelPreset = "auto",
    vocab: Annotated[str | None, Option(help="Existing vocabulary with the symbol [MASK].", metavar="FILE")] = None,
    units: Annotated[Literal["tokens", "words", "spans"] | None, Option(help="Masking unit. [default: tokens]")] = None,
    init_from: options.InitFrom = None,
    *,
    training: TrainingOptions,
) -> None:
    """Pretrain BERT on raw text by predicting masked tokens; rerun to resume.

    A document is one line, or a block of lines delimited by blank lines. Each file is a corpus; with
    data.language_sampling_alpha below 1, small corpora are upsampled.

    \b
    Examples:
      attnkit pretrain-mlm text.txt -o bert --preset tiny
      attnkit pretrain-mlm text.txt -o bert --set masking.mask_prob=0.3
      attnkit pretrain-mlm text.txt -o bert --set objective=electra
      attnkit pretrain-mlm a.en b.de -o bert --units words \\
        --set data.language_sampling_alpha=0.5
      attnkit pretrain-mlm text.txt -o bert --dry-run \\
        --set model.next_sentence=true
    """
    flags = {"task": "mlm", "data.files": files, "data.valid_files": valid, "masking.mask_unit": units}
    flags["vocabulary_files"] = None if vocab is None else [vocab]
    run_training(flags, training, output, preset=preset, init_from=init_from)
