"""Environment of ``torchrun``, and failures of earlier attempts. Torch-free.

After any nonzero exit code, the ``torchrun`` agent restarts all processes, up to ``--max-restarts`` times. No exit code
prevents this (``_invoke_run`` in torch/distributed/elastic/agent/server/api.py), and 0 would report success to the
caller. An attempt that can only repeat the previous failure therefore exits at once, silently and with the same code,
and the remaining restarts take only a moment.
"""

import os
from pathlib import Path

from attnkit.checkpoints import logs
from attnkit.errors import DataError, DivergedError, PeerFailedError, PeerLostError, RunError, SystemFailure, UsageError

REPEATING_EXIT_CODES = {kind.exit_code for kind in (UsageError, DataError, RunError, SystemFailure, DivergedError)}
"""Exit codes of failures, such as a full disk, that recur if the command is repeated without a fix."""


def launch_facts() -> dict[str, logs.Fact]:
    """Return ``{"launch": name}`` for ``status.json``; empty without ``torchrun``.

    All attempts of a launch share the name. The run id is not unique, because its default is "none". The folder that
    torchrun creates for the error files of a launch (…/NAME/attempt_0/0/error.json) is new for each launch.
    """
    run_id, error_file = (os.environ.get(f"TORCHELASTIC_{name}") for name in ("RUN_ID", "ERROR_FILE"))
    if run_id is None:
        return {}
    folder = Path(error_file).parts[-4:-3] if error_file else ()
    return {"launch": folder[0] if folder else f"{run_id}_{os.getppid()}"}


def failure_facts(error: BaseException) -> dict[str, logs.Fact]:
    """Return the facts in ``status.json`` that describe a failure to the next attempt."""
    return {**launch_facts(), **({"lost_peer": True} if isinstance(error, PeerLostError) else {})}


def is_of_this_launch(status: logs.Status | None) -> bool:
    """Return whether this launch wrote ``status``; False without ``torchrun``."""
    facts = launch_facts()
    return status is not None and bool(facts) and status.facts.get("launch") == facts["launch"]


def fail_fast_on_repeat(run: Path) -> None:
    """Raise ``PeerFailedError`` if the last failure of this launch would recur."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0:
        return
    status = logs.read_status(run)
    if status is None or not is_of_this_launch(status) or status.state != "failed" or status.exit_code is None:
        return
    if status.exit_code in REPEATING_EXIT_CODES and not status.facts.get("lost_peer"):
        raise PeerFailedError(status.reason, status.exit_code)
