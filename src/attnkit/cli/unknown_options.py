"""Options and arguments that a command does not have: what may be meant."""

from __future__ import annotations

import difflib
import re
from typing import Any

from attnkit.config.other_tools import meant_keys, remark

DEFAULTS = {
    "train": ("translation", "transformer"),
    "pretrain-mlm": ("mlm", "bert"),
    "pretrain-clm": ("clm", "gpt"),
    "finetune": ("text-classification", "bert"),
    "word2vec train": ("word2vec", ""),
}
"""Training command -> its default task and kind of model."""


def suggest_option(word: str, near: list[str], context: Any) -> str:
    """Return the help for an unknown option: what may be meant, or where to look.

    Args:
        word: the option as it was given, with its hyphens.
        near: options of the command that are spelled alike.
        context: click's context of the command; Any, as click's classes have other names in each typer version.
    """
    path = context.command_path
    flags = {flag for parameter in context.command.params for flag in parameter.opts if flag.startswith("--")}
    keys = meant_keys(word, lambda key: True)
    for key in keys:
        flag = f"--{key.rpartition('.')[2].replace('_', '-')}"
        if flag in flags:
            return f"did you mean {flag}?{remark(keys, word)}"
    close = [flag for flag in near if flag != "--help"]
    if keys and "--set" in flags:
        keys = keys_of(path.partition(" ")[2], keys)
        if keys:
            return f"use --set {' and '.join(f'{key}=VALUE' for key in keys)}{remark(keys, word)}"
    arguments = [parameter.metavar for parameter in context.command.params if not parameter.opts[0].startswith("-")]
    if (word == "-o" and "DIR" in arguments) or (word == "-i" and "TEXT" in arguments):
        return f"it is an argument: {path} {' '.join(arguments)}"
    return f"did you mean {close[0]}?" if close else f"{path} --help lists the options"


def suggest_arguments(message: str, context: Any) -> str:
    """Return the help for arguments that a command does not take.

    Args:
        message: click's, which names them in parentheses.
        context: click's context of the command.
    """
    path = context.command_path
    flags = {flag for parameter in context.command.params for flag in parameter.opts}
    given = message.partition("(s) (")[2].rstrip(").").split()
    if given and given[0].endswith((".yaml", ".yml")) and "--config" in flags:
        return f"{path} --config {given[0]}"
    if len(given) == 2 and {"--src", "--tgt"} <= flags:
        return f"{path} --src {given[0]} --tgt {given[1]}"
    return f"{path} --help"


def suggest_choice(message: str) -> str:
    """Return the help for a wrong choice; empty if no choice is spelled alike.

    Args:
        message: click's, which quotes the value and the choices.
    """
    given, _, listed = message.partition(" is not one of ")
    choices = re.findall("'([^']+)'", listed)
    word = given.rpartition(" ")[2].strip("'")
    if re.fullmatch("fine-?tun(e|ing)", word) and "adapt" in choices:  # the preset
        return "did you mean adapt?"
    close = difflib.get_close_matches(word, choices, n=1)
    return f"did you mean {close[0]}?" if close else ""


def keys_of(command: str, keys: list[str]) -> list[str]:
    """Return the keys that exist in the configuration of a training command."""
    from attnkit.config import has_key
    from attnkit.engine.registry import task_spec

    if command not in DEFAULTS:
        return []
    task, model = DEFAULTS[command]
    return [key for key in keys if has_key(task_spec(task, model).config, {"model": {"kind": model}}, key)]
