"""``attnkit compare-lm``: the predictions of BERT and GPT for the same text."""

from json import dumps
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli.options import CheckpointName, Device, Json, Threads


def command(
    bert: Annotated[Path, Argument(help="Masked language model.", metavar="BERT")],
    gpt: Annotated[Path, Argument(help="Language model.", metavar="GPT")],
    text: Annotated[str, Argument(help="Sentence whose tokens are predicted.", metavar="TEXT")],
    top: Annotated[int, Option(min=1, max=1000, help="Predictions per position; a terminal shows as many as fit.")] = 3,
    json: Json = False,
    checkpoint: CheckpointName = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Compare the predictions of BERT and GPT at each position of a sentence.

    BERT predicts each word, all of its tokens masked, from the words on both sides; GPT predicts the next token from
    the previous ones. Each line gives the context, the token with its probability, and the most probable predictions.
    The runs may have different vocabularies.

    \b
    Examples:
      attnkit compare-lm bert gpt "The cat sat on the mat."
      attnkit compare-lm bert gpt "The cat sat on the mat." --top 5 --json
    """
    from attnkit.plotting.lm_comparison import render
    from attnkit.progress import console
    from attnkit.runtime.devices import set_threads
    from attnkit.tasks.language_modeling.compare import compare

    set_threads(threads)
    found = compare((bert, gpt), text, top, device=device, checkpoint=checkpoint, warn=console.warn)
    if json:
        parts = {guessed.model.lower(): guessed.to_dict() for guessed in found}
        console.result(dumps({"text": text, **parts}, ensure_ascii=False))
        return
    width = min(console.width(), 120)
    for number, guessed in enumerate(found):
        n, pseudo = len(guessed.places), "pseudo-" if guessed.model == "BERT" else ""
        if number:
            console.result()
        console.result(f"{guessed.model} ({guessed.run}) predicts each token from {guessed.sees}; percentages")
        console.result(console.printable(render(guessed.places, width)))
        console.result(f"  {guessed.n_correct} of {n} correct, {pseudo}perplexity {guessed.perplexity:.2f}")
