"""Arguments and options shared by several commands, and defaults for all options."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

from typer import Argument, Option
from typer.models import OptionInfo

from attnkit.engine.names import LanguagePreset, Preset
from attnkit.progress.console import set_quiet


def command_hints(command: Callable[..., None]) -> dict[str, Any]:
    """Return a command's annotations, completed with defaults for all options.

    A path is shown as FILE, and a flag has no ``--no-...`` variant, unless the option specifies otherwise.
    """
    hints = {name: _annotated(hint) for name, hint in get_type_hints(command, include_extras=True).items()}
    for name, hint in hints.items():
        for info in getattr(hint, "__metadata__", ()):
            kind = hint.__origin__
            if Path in (kind, *get_args(kind)) or list[Path] in (kind, *get_args(kind)):
                info.metavar = info.metavar or "FILE"
            # Until typer builds the command, ``default`` holds the first option name.
            if bool in (kind, *get_args(kind)) and isinstance(info, OptionInfo) and info.default is ...:
                info.param_decls = (f"--{name.replace('_', '-')}",)
            info.readable = False  # unreadable files are reported by their reader, with its exit code
    return hints


def with_options(name: str, shared: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a command's parameter ``name`` by options, the fields of a dataclass.

    They come behind the command's own.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = dict(signature(command, eval_str=True).parameters)
        del parameters[name]
        hints = get_type_hints(shared, include_extras=True)
        for field in fields(shared):
            kind, hint = Parameter.KEYWORD_ONLY, hints[field.name]
            parameters[field.name] = Parameter(field.name, kind, default=field.default, annotation=hint)

        @wraps(command)
        def call(**values: Any) -> None:
            options = shared(**{field.name: values.pop(field.name) for field in fields(shared)})
            command(**values, **{name: options})

        # Typer reads these two.
        call.__signature__ = Signature(list(parameters.values()))  # type: ignore[attr-defined]
        call.__annotations__ = {key: parameter.annotation for key, parameter in parameters.items()}
        return call

    return decorate


def _annotated(hint: Any) -> Any:
    """Return a hint without the ``Optional`` around its ``Annotated``.

    Python 3.10 adds it to parameters whose default is None, and typer would lose the option within it.
    """
    inner = [part for part in get_args(hint) if hasattr(part, "__metadata__")]
    return inner[0] if inner and not hasattr(hint, "__metadata__") else hint


RunPath = Annotated[Path, Argument(help="Run folder.", metavar="RUN")]
Source = Annotated[Path, Argument(help="Source text; plain or compressed, or TABLE:FIELD.", metavar="SRC")]
Target = Annotated[Path, Argument(help="Target text; line n translates line n of SRC.", metavar="TGT")]
OutputFile = Annotated[Path | None, Option("-o", "--output", help="Output file; default: standard output.")]
Summary = Annotated[bool, Option(help="Print only the totals.")]
Quiet = Annotated[bool, Option("-q", "--quiet", help="Print results, warnings and errors only.", callback=set_quiet)]
Json = Annotated[bool, Option(help="Print JSON.")]
ReturnTokenScores = Annotated[bool, Option(help="Include each token with its log-probability, with --json.")]
JsonPairs = Annotated[bool, Option(help="One JSON object per pair, and one for the totals.")]
TargetVocab = Annotated[Path | None, Option(help="Target vocabulary, if separate.")]

# Commands that use a trained run.
CheckpointName = Annotated[str | None, Option(help="best, last, averaged or step-N. [default: best]", metavar="NAME")]
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], Option(help="Device.")]
Precision = Annotated[
    Literal["float32", "bfloat16", "int8"], Option(help="Precision; int8 is the fastest, on CPUs only.")
]
CpuPrecision = Annotated[
    Literal["float32", "bfloat16", "int8"], Option(help="Precision; bfloat16 and int8 (fastest) on CPUs only.")
]
Engine = Annotated[
    Literal["auto", "compiled", "torch"], Option(help="Compiled loops (CPU) or torch; auto: compiled if possible.")
]
Split = Annotated[
    Literal["auto", "sentences", "lines"],
    Option(help="Split lines into sentences; auto: those with more than the training text's lines."),
]
Adapter = Annotated[Path | None, Option(help="Run of an adapter to add to RUN's weights.", metavar="RUN")]
SourceLanguage = Annotated[
    str | None,
    Option(
        "--src-lang", help="Source language of an imported model: eng_Latn; of others, only checked.", metavar="CODE"
    ),
]
TargetLanguage = Annotated[
    str | None, Option("--tgt-lang", help="Target language of a run with several: de.", metavar="CODE")
]
Threads = Annotated[int | None, Option(min=1, max=1024, help="CPU threads per operation.")]
Strict = Annotated[bool, Option(help="Reject bytes that are not UTF-8.")]
BeamSize = Annotated[int | None, Option(help="Beam size; 1: greedy search. [default: the run's]")]
Sampling = Annotated[bool, Option(help="Sample instead of searching.")]
Temperature = Annotated[float | None, Option(help="Sampling temperature: <1 sharpens, >1 flattens.")]
TopK = Annotated[int | None, Option(help="Sample among the k most probable tokens.")]
SamplingSeed = Annotated[int | None, Option("--seed", help="Random seed of --sampling.")]
LengthPenalty = Annotated[float | None, Option(help="Length-penalty exponent α: score = log p / length^α.")]
MaxLength = Annotated[int | None, Option(help="Maximum translation length in tokens.")]
KeepFlagged = Annotated[bool, Option(help="Keep translations that are cut, repeated, copied, too short or too long.")]
MinLogProb = Annotated[float | None, Option(help="Minimum log-probability per token of the translation, by RUN.")]
TopP = Annotated[
    float | None, Option(help="Nucleus sampling: sample from the smallest token set with total probability ≥ p.")
]
RepetitionPenalty = Annotated[float | None, Option(help="Penalty on repeated tokens (CTRL); 1: none.")]
Svg = Annotated[Path | None, Option(help="Write an SVG image (needs attnkit[plot]).")]
Png = Annotated[Path | None, Option(help="Write a PNG image.")]
Pdf = Annotated[Path | None, Option(help="Write a PDF image.")]

# Training commands; the options common to all are fields of ``_train.TrainingOptions``.
RunOutput = Annotated[Path, Option("-o", "--output", help="Run folder to write.", metavar="RUN")]
InitFrom = Annotated[Path | None, Option(help="Run that provides initial weights and vocabulary.", metavar="RUN")]
Overwrite = Annotated[bool, Option(help="Rename an existing run folder and start a new run.")]
DryRun = Annotated[bool, Option(help="Show the resolved configuration and an estimate; do not train.")]
AnyPreset = Annotated[
    Literal["auto", Preset],
    Option(help=f"Preset of all other keys: {', '.join(get_args(Preset))}, or auto, by corpus size.", metavar="NAME"),
]
LanguageModelPreset = Annotated[Literal["auto", LanguagePreset], Option(help="Preset of all other keys.")]
Text = Annotated[list[str] | None, Argument(help="Text, plain or compressed, or TABLE:FIELD.", metavar="FILE...")]
ValidText = Annotated[list[str] | None, Option(help="Validation text; repeatable.", metavar="FILE")]

# Commands on word vectors.
VectorsPath = Annotated[Path, Argument(help="Run of word2vec train, or a word-vector file.", metavar="VECTORS")]
VectorsCheckpoint = Annotated[str | None, Option(help="Checkpoint of a run: best, last or step-N.", metavar="NAME")]
FirstWords = Annotated[
    int | None, Option("--top", "--restrict", min=1, help="Use only the N most frequent words.", metavar="N")
]
NumAnswers = Annotated[int, Option("-n", "--num", min=1, max=1_000_000, help="Number of answers.", metavar="N")]
EncoderLayer = Annotated[
    int | None, Option(min=0, help="Layer of BERT or GPT; 0 is the embedding layer. [default: the last]", metavar="N")
]
