"""``attnkit demo``: train, evaluate and translate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from attnkit.cli.options import Quiet

if TYPE_CHECKING:
    from attnkit.demo import DemoResults


def command(
    output: Annotated[Path, Option("-o", "--output", help="Folder of the corpus and the run.", metavar="DIR")] = Path(
        "demo-run"
    ),
    seed: Annotated[int, Option(min=0, help="Random seed for the corpus and training.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Train a small English-French model on a generated corpus; translate with it.

    \b
    Example:
      attnkit demo
    """
    from attnkit.cli._train import follow
    from attnkit.io.lock import check_not_in_use
    from attnkit.progress import console

    check_not_in_use(output / "run")  # before torch is loaded, and before the corpus is written
    from attnkit.demo import DemoResults, demo
    from attnkit.engine.events import TrainingFinished
    from attnkit.runtime.signals import StopRequests

    with StopRequests() as stop, console.StatusLine() as line:

        def handle(outcome: object) -> None:
            if isinstance(outcome, TrainingFinished):
                stop.release()
            elif isinstance(outcome, DemoResults):
                print_results(outcome, output)

        follow(demo(output, seed, stop), line, stop.defer, handle)


def print_results(found: DemoResults, folder: Path) -> None:
    """Print scores, translations, an attention map and further commands to try."""
    from attnkit.plotting.terminal import attention_map
    from attnkit.progress import console

    console.result(f"\nBLEU on {found.n_test:,} unseen sentences: {found.bleu.score:.1f}")
    console.result(f"  {found.bleu.signature}")
    console.result(f"  word-by-word baseline with the corpus lexicon: {found.word_by_word.score:.1f}")
    console.result("\nSentences with word combinations unseen in training:")
    for source, reference, translation in found.examples:
        expected = "" if translation == reference else f"   (expected: {reference})"
        console.result(f"  {source}\n    -> {translation}{expected}")
    console.result("\nSentences from the lecture notes, also unseen in training:")
    for note in found.notes:
        console.result(f"  {note.source}\n    -> {note.outputs[0].text}")
    last = found.notes[-1]
    attention = last.outputs[0].attention
    if attention:
        console.result("\nAttention weights in percent (rows: French, columns: English):\n")
        weights = attention[0]
        rows = [*last.outputs[0].tokens[0], "</s>"][: len(weights)]
        columns = [*last.source_tokens[0], "</s>"][: len(weights[0])]
        console.result(attention_map(weights, columns, rows, colour=console.supports_color(), width=80))
    translate = console.command("translate", folder / "run")
    console.result(f'\nNext:\n  echo "The old woman saw a cat." | {translate}')
    console.result(f"  {console.command('train', '--src', 'your.en', '--tgt', 'your.fr', '-o', 'run')}")
