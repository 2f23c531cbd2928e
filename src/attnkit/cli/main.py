"""Command line: the table of commands, error messages and exit codes.

The module of a command is imported when the command is called. This module and the help pages do not import torch.
"""

import difflib
import gc
import itertools
import os
import re
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
import typer.core
import typer.main

from attnkit.cli.options import command_hints
from attnkit.errors import AttnkitError, SystemFailure, UsageError, system_failure
from attnkit.progress import console
from attnkit.runtime.signals import INTERRUPTED, TERMINATED, Signals

MAX_LINE_LENGTH = 1000  #: maximum characters per line of a message, which may quote a path or word of any length
_NO_MEMORY = re.compile(r"(can't|[Cc]annot) allocate memory|out of memory|failed to map segment")
READER = "attnkit reader"  #: name of the thread that reads ahead from standard input

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100_000}  #: as wide as the terminal
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Train a small English-French model and translate with it (3 minutes)."),
    "check": ("check", "Check two line-aligned files: alignment, languages, damage."),
    "clean": ("clean", "Filter, repair and realign two line-aligned files."),
    "vocab": ("vocab", "Build a vocabulary from text files."),
    "train": ("train", "Train a model: translation, auto-encoder, classifier."),
    "pretrain-mlm": ("pretrain_mlm", "Pretrain BERT on raw text: predict masked tokens."),
    "pretrain-clm": ("pretrain_clm", "Pretrain GPT on raw text: predict the next token."),
    "finetune": ("finetune", "Fine-tune a pretrained BERT: classify, tag, answer."),
    "predict": ("predict", "Predict labels, tags or answers with a fine-tuned run."),
    "fill-mask": ("fill_mask", "Predict masked tokens with BERT."),
    "generate": ("generate", "Generate text from a prompt with GPT."),
    "compare-lm": ("compare_lm", "Compare the predictions of BERT and GPT in one sentence."),
    "translate": ("translate", "Translate text with one run or an ensemble."),
    "back-translate": ("back_translate", "Make training pairs from target text alone."),
    "augment": ("augment", "Make more training pairs of a corpus by translating both sides."),
    "distill": ("distill", "Make training text from a teacher's translations."),
    "align": ("align", "Align the words of two files; write a lexicon."),
    "attend": ("attend", "Show the attention weights of a model."),
    "embed": ("embed", "Embed lines as vectors with BERT, GPT or an auto-encoder."),
    "score": ("score", "Score given translations: log-probability, perplexity."),
    "score-bleu": ("score_bleu", "Score translations: BLEU, chrF and TER with signatures."),
    "compare": ("compare", "Compare translators on test files, with the paired test."),
    "runs": ("runs", "List the runs below a folder: scores, times, differences."),
    "plan": ("plan", "Plan a training run: parameters, tokens, memory, hours, by a measured rate."),
    "sweep": ("sweep", "Train a run for each combination of values and seeds."),
    "report": ("report", "Write one page about runs: curves, settings, samples, tests."),
    "serve": ("serve", "Serve runs over HTTP, for programs and people."),
    "average": ("average", "Average the weights of a run's checkpoints."),
    "verify": ("verify", "Verify every byte of a run folder."),
    "export": ("export", "Export a run to another system's format."),
    "import": ("import_", "Import a model of another system."),
    "explain": ("explain", "Explain masks, positions and kernel regression."),
    "licenses": ("licenses", "List the installed dependencies with their licences."),
    "toy-corpus": ("toy_corpus", "Generate a small corpus to experiment with."),
    "word2vec": ("word2vec", "Train, query, evaluate, convert and plot word vectors."),
}
"""Command -> (module in attnkit.cli, with ``:function`` unless it is ``command``; summary in the help page)."""
WORD2VEC: dict[str, tuple[str, str]] = {
    "train": ("word2vec.train", "Train vectors: skip-gram, CBOW, GloVe, subwords."),
    "similar": ("word2vec.queries:similar", "Print the nearest neighbours of words."),
    "analogy": ("word2vec.queries:analogy", "Solve analogies: man is to king as woman to ..."),
    "odd-one": ("word2vec.queries:odd_one", "Find the word that does not fit."),
    "distance": ("word2vec.queries:distance", "Print cosine and distance of two words."),
    "evaluate": ("word2vec.evaluate", "Evaluate on word-similarity and analogy files."),
    "cluster": ("word2vec.maps:cluster", "Cluster words by k-means."),
    "phrases": ("word2vec.phrases", "Find and join phrases: new_york."),
    "convert": ("word2vec.convert", "Convert vectors to another format."),
    "project": ("word2vec.maps:project", "Project vectors to two dimensions as an HTML page."),
    "one-hot": ("word2vec.queries:one_hot", "Compare one-hot vectors with trained ones."),
    "compare-context": ("word2vec.compare_context", "Compare the vectors of a word in two sentences."),
}
TRAINING = [["train"], ["pretrain-mlm"], ["pretrain-clm"], ["finetune"]]
"""Commands that support distributed training."""
PAIR_OPTIONS = ("--pair", "--valid-pair")
"""Options of ``train`` that take three values."""
GROUPS = {"word2vec": WORD2VEC}  #: commands with subcommands


def import_command(target: str) -> Callable[..., Any]:
    """Import a command's function: ``command``, or the name after the colon."""
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"attnkit.cli.{module}"), name or "command")
    return function


class LazyGroup(typer.core.TyperGroup):
    """Command group that imports commands on first use."""

    @property
    def table(self) -> dict[str, tuple[str, str]]:
        return GROUPS.get(self.name or "", COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:  # Any: click's classes have other names in each typer version
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.table:
            return None
        function = import_command(self.table[cmd_name][0])
        function.__annotations__ = command_hints(function)
        made = typer.Typer(add_completion=False, **PLAIN)
        if cmd_name in GROUPS:
            made.callback(cls=LazyGroup, invoke_without_command=True, context_settings=HELP)(function)
        else:
            made.command(cmd_name, context_settings=HELP)(function)
        command = typer.main.get_command(made)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        wrong = args and args[0] not in self.table and not args[0].startswith("-")
        if wrong and not ctx.resilient_parsing:  # shell completion must not print an error
            close = difflib.get_close_matches(args[0], self.table, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"{ctx.command_path} --help lists the commands"
            raise UsageError(f"unknown command '{args[0]}'", help=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])


app = typer.Typer(cls=LazyGroup, invoke_without_command=True, context_settings=HELP, **PLAIN)


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
        return
    try:
        Path.cwd()
    except FileNotFoundError as error:  # torch's libraries would end the process
        raise SystemFailure("the working directory does not exist", help="cd to an existing directory") from error


def main() -> None:
    """Run the command line and exit with the command's exit code."""
    gc.set_threshold(50_000)  # imports make many objects and no garbage
    for number in range(3):  # an opened file must not get the descriptor of a closed standard stream
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    end_of_flags = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    debug = "--debug" in sys.argv[:end_of_flags]
    arguments = [a for i, a in enumerate(sys.argv[1:], 1) if a != "--debug" or i >= end_of_flags]
    with Signals() as signals:
        try:
            code = run(arguments, debug, signals)
        except (KeyboardInterrupt, SystemExit) as error:
            if not signals.code:
                raise
            code = report(error, is_echo(error, arguments), debug)  # a signal before ``run`` could catch it
        finally:
            signals.ignore()
    if any(thread.name == READER for thread in threading.enumerate()):
        # A thread blocked on standard input holds its lock; the interpreter would abort on that lock at exit.
        os._exit(code)
    sys.exit(code)


def join_values(arguments: list[str]) -> list[str]:
    """Return arguments with the three values of ``--pair`` as one, between NULs.

    Typer has no options of several values that may be repeated. Raises ``UsageError`` if values are missing.
    """
    if arguments[:1] != ["train"]:
        return arguments
    remaining, joined = iter(arguments), []
    for argument in remaining:
        option, equals, value = argument.partition("=")
        joined.append(argument)
        if option not in PAIR_OPTIONS:
            continue
        values = [value] * bool(equals) + list(itertools.islice(remaining, 2 if equals else 3))
        if len(values) < 3 or any(text.startswith("-") for text in values):
            what = f"{option} takes languages and two files"
            raise UsageError(what, where=option, help=f"attnkit train {option} en:de a.en a.de")
        joined[-1:] = [option, "\0".join(values)]
    return joined


def run(arguments: list[str], debug: bool, signals: Signals) -> int:
    """Run a command, report its error if any, and return its exit code."""
    try:
        code = app(args=join_values(arguments), prog_name="attnkit", standalone_mode=False)
        signals.armed = False
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        signals.armed = False  # before any call: from here on, signals no longer raise
        if signals.code and describe(error)[1] not in (75, signals.code):  # an import turned it into an ImportError
            error = KeyboardInterrupt() if signals.code == INTERRUPTED else SystemExit(TERMINATED)
        if isinstance(error, SystemExit) and error.code != TERMINATED:
            raise
        return finish_stdout(report(error, is_echo(error, arguments), debug))
    if code == INTERRUPTED:  # newer typer silently converts the exception to this code
        code = report(KeyboardInterrupt(), is_echo(KeyboardInterrupt(), arguments))
    return finish_stdout(code if isinstance(code, int) else 0)


def finish_stdout(code: int) -> int:
    """Flush stdout and stderr, or discard their content; return the exit code.

    Discarding prevents an error at interpreter exit. A closed pipe (``| head``) or a lost message is not a failure.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            if stream is sys.stdout and not (code or isinstance(error, BrokenPipeError)):
                code = report(system_failure("write", "standard output", error))
    return code


def report(error: BaseException, echo: bool = False, debug: bool = False) -> int:
    """Print an error to stderr unless ``echo`` is set; return its exit code."""
    lines, code = describe(error)
    if lines and not echo:
        if debug:
            import traceback

            console.alert("".join(traceback.format_exception(error)).rstrip())
        cut = (line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}…" for line in lines)
        console.alert("\n".join(cut))
    return code


def is_echo(error: BaseException, arguments: list[str]) -> bool:
    """Return whether another local rank of ``torchrun`` prints the same message.

    All ranks fail alike until they have joined the process group. After that, the rank that raises an error reports it,
    and the other ranks end silently (``distributed.process_group``).
    """
    if arguments[:1] not in TRAINING or os.environ.get("LOCAL_RANK", "0") == "0":
        return False
    distributed = sys.modules.get("torch.distributed")
    joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    alike = isinstance(error, AttnkitError) or hasattr(error, "format_message")
    return (alike and not joined) or isinstance(error, KeyboardInterrupt | SystemExit | typer.Abort)


def describe(error: BaseException) -> tuple[list[str], int]:
    """Return an error's message lines, empty if it is silent, and its exit code."""
    if isinstance(error, KeyboardInterrupt | SystemExit | typer.Abort):
        return ["interrupted"], TERMINATED if isinstance(error, SystemExit) else INTERRUPTED
    if hasattr(error, "format_message"):  # click's own errors: wrong flags and arguments
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "attnkit"
        message = " ".join(error.format_message().split())  # choices are listed line by line
        message = message.replace("Value error, ", "")  # the prefix of pydantic
        word = getattr(error, "option_name", None)
        if type(error).__name__ == "NoSuchOption" and context and isinstance(word, str):
            from attnkit.cli.unknown_options import suggest_option

            near = list(getattr(error, "possibilities", None) or ())
            return [f"error: unknown option {word}", f"help: {suggest_option(word, near, context)}"], 2
        if context and message.startswith("Got unexpected extra argument"):
            from attnkit.cli.unknown_options import suggest_arguments

            return [f"error: {message}", f"help: {suggest_arguments(message, context)}"], 2
        if isinstance(word, str) and message.endswith("requires an argument."):
            return [f"error: {message}", f"help: write its value after it: {word} VALUE"], 2
        if " is not one of " in message:
            from attnkit.cli.unknown_options import suggest_choice

            return [f"error: {message}", f"help: {suggest_choice(message) or f'{path} --help'}"], 2
        return [f"error: {message}", f"help: {path} --help"], 2
    # Torch has its own out-of-memory errors, but must not be imported here.
    # A failed mmap may raise a SystemError, and a library that cannot be mapped an ImportError.
    cause = error.__cause__ or error.__context__
    starved = isinstance(error, RuntimeError | ImportError | SystemError) and _NO_MEMORY.search(f"{error} {cause}")
    if isinstance(error, OSError) and error.errno is not None:  # not handled where it occurred
        where = f"use {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else "continue"
        help = system_failure("use", "", error).help
        error = SystemFailure(f"cannot {where}: {os.strerror(error.errno)}", help=help)
    elif isinstance(error, MemoryError) or starved:
        error = SystemFailure("out of memory", help="use a smaller batch or a smaller model")
    if isinstance(error, AttnkitError):
        return error.lines(), error.exit_code
    text = " ".join(str(error).split())[:300]
    what = f"error: this is a bug in attnkit: {type(error).__name__}: {text}"
    return [what, "help: run the command with --debug for a traceback"], 1
