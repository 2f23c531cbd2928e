"""The command line: one table from command to module, and every error as one message and an exit code.

A command's module is loaded when it is called. Nothing here imports torch, nor does any help page.
"""

from __future__ import annotations

import difflib
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
import typer.core
import typer.main

from attnkit.errors import AttnkitError, UsageError
from attnkit.files import failure

INTERRUPTED = 130
READER = "attnkit reader"
"""The name of the thread that reads standard input ahead."""

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Train a small English-French model and translate with it (3 minutes)."),
    "check": ("check", "Find what is wrong with two line-aligned files."),
    "vocab": ("vocab", "Build a vocabulary from text files."),
    "train": ("train", "Train a translation model from two text files."),
    "translate": ("translate", "Translate text with one run or an ensemble."),
    "score": ("score", "Log-probability and perplexity of given pairs."),
    "score-bleu": ("score_bleu", "BLEU, chrF and TER with signature."),
    "average": ("average", "Average the weights of a run's checkpoints."),
    "export": ("export", "Write a run in another system's format."),
    "toy-corpus": ("toy_corpus", "Make a parallel corpus to play with."),
}
"""Command -> (module in attnkit.commands that holds ``command``, the line shown in the list)."""


class LazyGroup(typer.core.TyperGroup):
    """The list of commands without their modules; a module is imported when its command is asked for.

    Typer's releases carry click under different names, so its types are left to inference here.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        function: Callable[..., Any] = import_module(f"attnkit.commands.{COMMANDS[cmd_name][0]}").command
        command = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        command.command(cmd_name, context_settings=HELP)(function)
        return typer.main.get_command(command)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        wrong = args and args[0] not in COMMANDS and not args[0].startswith("-")
        if wrong and not ctx.resilient_parsing:  # a shell that completes a line wants no error in it
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean '{close[0]}'?" if close else "attnkit --help lists the commands"
            raise UsageError(f"there is no command '{args[0]}'", help=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings=HELP,
)


def _print_version(value: bool) -> None:
    if value:
        from attnkit import __version__

        print(f"attnkit {__version__}")
        raise typer.Exit


@app.callback()
def attnkit(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error (works after any command too)."),
) -> None:
    """Translation and pretraining from raw text: train, translate, score.

    \b
    First steps:
      attnkit demo
      attnkit train --src a.en --tgt a.de -o run
      echo "A dog runs." | attnkit translate run
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the command line and end the process with the exit code of the design."""
    end_of_flags = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    debug = "--debug" in sys.argv[:end_of_flags]
    arguments = [a for i, a in enumerate(sys.argv[1:], 1) if a != "--debug" or i >= end_of_flags]
    try:
        code = app(args=arguments, prog_name="attnkit", standalone_mode=False)
        if code == INTERRUPTED:  # newer typer turns the exception into this code, without a word
            code = report(KeyboardInterrupt(), is_echo(KeyboardInterrupt(), arguments))
        code = finish_stdout(code if isinstance(code, int) else 0)
    except (Exception, KeyboardInterrupt) as error:
        code = finish_stdout(report(error, is_echo(error, arguments), debug))
    if any(thread.name == READER for thread in threading.enumerate()):
        # A thread that waits for a line of standard input holds its lock, on which the interpreter would abort.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def finish_stdout(code: int) -> int:
    """Write out what was printed, or give it up for the interpreter not to fail at its end; return the exit code.

    A reader that went away (as in ``| head``) is no failure: nobody is left to tell.
    """
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not (code or isinstance(error, BrokenPipeError)):
            return report(failure("write", "standard output", error))
    return code


def report(error: BaseException, echo: bool = False, debug: bool = False) -> int:
    """Print an error as at most three lines on stderr, unless it echoes another's, and return its exit code."""
    lines, code = describe(error)
    if lines and not echo:
        if debug:
            import traceback

            traceback.print_exception(error)
        print("\n".join(lines), file=sys.stderr, flush=True)
    return code


def is_echo(error: BaseException, arguments: list[str]) -> bool:
    """Return whether another process that ``torchrun`` started on this machine says the same.

    They fail alike until they have joined. From then on whoever raises an error is the one to tell of it
    (``runtime.Ranks``).
    """
    if arguments[:1] != ["train"] or os.environ.get("LOCAL_RANK", "0") == "0":
        return False
    distributed = sys.modules.get("torch.distributed")
    joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    alike = isinstance(error, AttnkitError) or hasattr(error, "format_message")
    return (alike and not joined) or isinstance(error, KeyboardInterrupt | typer.Abort)


def describe(error: BaseException) -> tuple[list[str], int]:
    """Return the lines that tell a user of an error, none where they have been told, and its exit code."""
    if isinstance(error, AttnkitError):
        lines, code = error.lines(), error.exit_code
    elif isinstance(error, KeyboardInterrupt | typer.Abort):
        lines, code = ["interrupted"], INTERRUPTED
    elif hasattr(error, "format_message"):  # click's own errors: wrong flags and arguments
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "attnkit"
        lines, code = [f"error: {error.format_message()}", f"help: {path} --help"], 2
    else:
        text = " ".join(str(error).split())[:300]
        lines = [
            f"error: this is a bug in attnkit: {type(error).__name__}: {text}",
            "help: the same command with --debug shows where",
        ]
        code = 1
    return lines, code
