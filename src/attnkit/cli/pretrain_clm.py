"""``attnkit pretrain-clm``: pretraining of a decoder (GPT) on raw text."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from attnkit.cli import options
from attnkit.cli._train import TrainingOptions, run_training, with_training_options
from attnkit.engine.names import Direction, LanguagePreset


@with_training_options
def command(
    files: options.Text = None,
    output: options.RunOutput = Path("run"),
    direction: Annotated[Direction | None, Option(help="Reading direction. [default: left-to-right]")] = None,
    valid: options.ValidText = None,
    preset: Annotated[Literal["auto", LanguagePreset, "adapt"], Option(help="Preset of all other keys.")] = "auto",
    vocab: Annotated[str | None, Option(help="Existing vocabulary.", metavar="FILE")] = None,
    init_from: options.InitFrom = None,
    *,
    training: TrainingOptions,
) -> None:
    """Pretrain GPT on raw text by predicting the next token; rerun to resume.

    A document is one line, or a block of lines delimited by blank lines.

    \b
    Examples:
      attnkit pretrain-clm text.txt -o gpt --preset tiny
      attnkit pretrain-clm text.txt -o backwards --direction right-to-left
      attnkit pretrain-clm text.txt -o gpt --set model.positions=rotary --dry-run
    """
    flags = {"task": "clm", "data.files": files, "data.valid_files": valid, "direction": direction}
    flags["vocabulary_files"] = None if vocab is None else [vocab]
    run_training(flags, training, output, preset=preset, init_from=init_from)
