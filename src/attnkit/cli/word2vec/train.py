"""Command ``attnkit word2vec train``: train word vectors on text."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from attnkit.cli._train import TrainingOptions, run_training
from attnkit.cli.options import DryRun, Json, Overwrite, Quiet, RunOutput
from attnkit.tasks.word2vec.config import Context, Loss, Method

_KEYS = (
    *("method", "context", "loss", "dim", "window", "dynamic_window", "negative", "exact", "sample", "ns_exponent"),
    *("epochs", "alpha", "min_alpha", "init_from", "threads", "deterministic", "seed", "device", "save_every"),
)  #: configuration keys with a flag of the same name


def command(
    files: Annotated[
        list[str] | None, Argument(metavar="FILE...", help="Text, plain or compressed; - reads standard input.")
    ] = None,
    output: RunOutput = Path("vectors"),
    method: Annotated[Method | None, Option(help="Training method. [default: skip-gram]")] = None,
    context: Annotated[Context | None, Option(help="Combination of context vectors in CBOW. [default: mean]")] = None,
    loss: Annotated[Loss | None, Option(help="Loss. [default: negative]")] = None,
    dim: Annotated[int | None, Option(help="Vector size. [default: 100]")] = None,
    window: Annotated[int | None, Option(help="Window size per side. [default: 5, glove 15]")] = None,
    negative: Annotated[int | None, Option(help="Negative samples per pair. [default: 5]")] = None,
    sample: Annotated[float | None, Option(help="Subsampling threshold of frequent words. [default: 0.001]")] = None,
    min_count: Annotated[int | None, Option(help="Minimum word frequency. [default: 5]")] = None,
    max_vocab: Annotated[int | None, Option(help="Maximum vocabulary size.")] = None,
    epochs: Annotated[int | None, Option(help="Epochs. [default: 5; 25 for glove]")] = None,
    alpha: Annotated[float | None, Option(help="Initial learning rate. [default: by method]")] = None,
    min_alpha: Annotated[float | None, Option(help="Final learning rate. [default: 0.0001]")] = None,
    ns_exponent: Annotated[float | None, Option(help="Exponent of the noise distribution. [default: 0.75]")] = None,
    dynamic_window: Annotated[
        bool | None,
        Option(
            "--dynamic-window/--no-dynamic-window",
            help="Sample the window size uniformly for each centre word.",
            show_default=False,
        ),
    ] = None,
    exact: Annotated[bool | None, Option("--exact", help="Draw negative samples per pair, as gensim does.")] = None,
    phrases: Annotated[int | None, Option(help="Number of phrase-detection passes (new york -> new_york).")] = None,
    subwords: Annotated[bool, Option("--subwords", help="Learn character n-gram vectors (fastText).")] = False,
    min_n: Annotated[int | None, Option(help="Minimum n-gram length. [default: 3]")] = None,
    max_n: Annotated[int | None, Option(help="Maximum n-gram length. [default: 6]")] = None,
    buckets: Annotated[int | None, Option(help="Hash buckets of n-grams. [default: 2000000]")] = None,
    tokenizer: Annotated[str | None, Option(help="Vocabulary or run with tokens as words.", metavar="FILE|RUN")] = None,
    lower: Annotated[bool | None, Option("--lower", help="Lower-case the text.")] = None,
    init_from: Annotated[str | None, Option(help="Vectors to initialize from.", metavar="FILE|RUN")] = None,
    threads: Annotated[int | None, Option(help="Training threads. [default: all processors]")] = None,
    deterministic: Annotated[
        bool | None,
        Option("--deterministic", help="Train reproducibly: identical vectors for the same number of threads."),
    ] = None,
    seed: Annotated[int | None, Option(help="Random seed. [default: 1]")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"] | None, Option(help="Device.")] = None,
    save_every: Annotated[float | None, Option(help="Minutes between checkpoints. [default: 10]")] = None,
    config: Annotated[Path | None, Option("-c", "--config", help="YAML configuration.", metavar="FILE")] = None,
    sets: Annotated[list[str] | None, Option("--set", help="Configuration key: glove.x_max=50.", metavar="K=V")] = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train word vectors on text; run it again to resume.

    \b
    Examples:
      attnkit word2vec train text.txt -o vectors
      attnkit word2vec train text.txt.xz -o vectors --method cbow --lower
      attnkit word2vec train text.txt -o vectors --subwords --deterministic
      attnkit word2vec train text.txt -o vectors --method glove
    """
    given = locals()
    flags: dict[str, Any] = {"task": "word2vec", "data.files": files or None, "data.phrases.passes": phrases}
    flags |= {f"data.{name}": given[name] for name in ("lower", "min_count", "max_vocab", "tokenizer")}
    flags |= {"subwords": {} if subwords else None}
    flags |= {f"subwords.{name}": given[name] for name in ("min_n", "max_n", "buckets")}
    flags |= {name: given[name] for name in _KEYS}
    training = TrainingOptions(config=config, sets=sets, overwrite=overwrite, dry_run=dry_run, quiet=quiet, json=json)
    run_training(flags, training, output)
