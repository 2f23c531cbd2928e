"""What the servers that fork commands share: all that is imported before, and how a forked command ends."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MODULES = (
    *("conversion.export_ctranslate2", "demo", "engine.averaging", "engine.resolve", "text.vocabulary"),
    *(f"tasks.translation.{name}" for name in ("evaluate", "score", "task", "translator")),
)


def import_everything() -> None:
    """Import what commands import, so that a forked one starts at once; whom a killed one leaves behind comes here."""
    from attnkit.cli.main import COMMANDS, GROUPS, import_command

    for target in [target for table in (COMMANDS, *GROUPS.values()) for target, _ in table.values()]:
        import_command(target)
    for module in MODULES:
        importlib.import_module(f"attnkit.{module}")
    import torch

    torch.set_num_threads(1)
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    gc.freeze()


@contextmanager
def ending() -> Iterator[None]:
    """End this process with the block, by the exit code that the command has chosen; 1 and a traceback for a bug."""
    code = 1
    try:
        yield
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):  # they may be closed, or broken pipes
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
