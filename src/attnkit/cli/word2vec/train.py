"""``attnkit word2vec train``: text in, vectors of its words out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from attnkit.cli._train import Given, begin
from attnkit.tasks.word2vec.config import Context, Loss, Method


def command(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", help="Text; - is standard input.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder.", metavar="RUN")] = Path("vectors"),
    method: Annotated[Method | None, typer.Option(help="[default: skip-gram]")] = None,
    context: Annotated[Context | None, typer.Option(help="How CBOW joins the neighbours. [default: mean]")] = None,
    loss: Annotated[Loss | None, typer.Option(help="[default: negative]")] = None,
    dim: Annotated[int | None, typer.Option(help="Numbers of a vector. [default: 100]")] = None,
    window: Annotated[int | None, typer.Option(help="Words to either side. [default: 5, glove 15]")] = None,
    negative: Annotated[int | None, typer.Option(help="Random words a neighbour. [default: 5]")] = None,
    sample: Annotated[float | None, typer.Option(help="Thin out words above this share. [default: 0.001]")] = None,
    min_count: Annotated[int | None, typer.Option(help="Leave rarer words out. [default: 5]")] = None,
    max_vocab: Annotated[int | None, typer.Option(help="Keep the most frequent words.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the text. [default: 5, glove 25]")] = None,
    alpha: Annotated[float | None, typer.Option(help="First learning rate; chosen by the method.")] = None,
    min_alpha: Annotated[float | None, typer.Option(help="Last learning rate. [default: 0.0001]")] = None,
    ns_exponent: Annotated[float | None, typer.Option(help="Of counts, for random words. [default: 0.75]")] = None,
    dynamic_window: Annotated[bool | None, typer.Option(help="Draw each window's size.", show_default=False)] = None,
    exact: Annotated[bool | None, typer.Option("--exact", help="Fresh random words for each pair, as gensim.")] = None,
    phrases: Annotated[int | None, typer.Option(help="Join neighbours this often: new_york.")] = None,
    subwords: Annotated[bool, typer.Option("--subwords", help="Compose words of n-grams, unseen ones too.")] = False,
    min_n: Annotated[int | None, typer.Option(help="Shortest n-grams. [default: 3]")] = None,
    max_n: Annotated[int | None, typer.Option(help="Longest n-grams. [default: 6]")] = None,
    buckets: Annotated[int | None, typer.Option(help="Rows of n-grams. [default: 2000000]")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Tokens of a vocabulary as words.", metavar="FILE|RUN")] = None,
    lower: Annotated[bool | None, typer.Option("--lower", help="Lower-case the text.")] = None,
    init_from: Annotated[str | None, typer.Option(help="Vectors to begin with.", metavar="FILE|RUN")] = None,
    threads: Annotated[int | None, typer.Option(help="[default: all processors]")] = None,
    deterministic: Annotated[bool | None, typer.Option("--deterministic", help="The same bytes each time.")] = None,
    seed: Annotated[int | None, typer.Option(help="[default: 1]")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Where to compute.")] = None,
    save_every: Annotated[float | None, typer.Option(help="Minutes between checkpoints. [default: 10]")] = None,
    config: Annotated[Path | None, typer.Option("-c", "--config", help="YAML configuration.", metavar="FILE")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Any key, as glove.x_max=50.", metavar="K=V")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Move an old run of this name aside.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Train word vectors from text; run it again to go on.

    \b
    Examples:
      attnkit word2vec train text.txt -o vectors
      attnkit word2vec train text.txt.xz -o vectors --method cbow --lower
      attnkit word2vec train text.txt -o vectors --subwords --deterministic
      attnkit word2vec train text.txt -o vectors --method glove
    """
    grams = {"subwords.min_n": min_n, "subwords.max_n": max_n, "subwords.buckets": buckets}
    flags: dict[str, Any] = {
        "task": "word2vec",
        "data.files": files or None,
        "data.lower": lower,
        "data.min_count": min_count,
        "data.max_vocab": max_vocab,
        "data.tokenizer": tokenizer,
        "data.phrases.passes": phrases,
        "method": method,
        "context": context,
        "loss": loss,
        "dim": dim,
        "window": window,
        "dynamic_window": dynamic_window,
        "negative": negative,
        "exact": exact,
        "sample": sample,
        "ns_exponent": ns_exponent,
        "subwords": {} if subwords else None,
        **grams,
        "epochs": epochs,
        "alpha": alpha,
        "min_alpha": min_alpha,
        "init_from": init_from,
        "threads": threads,
        "deterministic": deterministic,
        "seed": seed,
        "device": device,
        "save_every": save_every,
    }
    begin(flags, Given(output, config, "auto", sets, None, overwrite, dry_run, json))
