"""``attnkit average``: average of several checkpoints."""

from json import dumps
from typing import Annotated

from typer import Option

from attnkit.cli.options import Json, RunPath


def command(
    run: RunPath,
    n: Annotated[int | None, Option("-n", "--last", min=2, help="Number of newest checkpoints. [default: all]")] = None,
    checkpoint: Annotated[list[str] | None, Option(help="Checkpoint by name, e.g. step-400; repeatable.")] = None,
    json: Json = False,
) -> None:
    """Average the weights of a run's checkpoints; translate then uses the average.

    Checkpoints saved by an interruption are skipped unless named with --checkpoint.

    \b
    Examples:
      attnkit average run --last 5
      attnkit translate run < test.en
    """
    from attnkit.io.lock import check_not_in_use
    from attnkit.progress import console

    check_not_in_use(run)  # before torch is loaded
    from attnkit.engine.averaging import average_run

    done = average_run(run, n, checkpoint or [])
    for text in done.warnings:
        console.warn(text)
    if json:
        console.result(dumps(done.to_dict()))
    else:
        console.result(f"averaged {', '.join(done.names)} into {done.path}")
