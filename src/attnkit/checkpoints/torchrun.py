"""Environment variables of ``torchrun``, and failures recorded by an earlier attempt. Torch-free.

After any exit code but 0 the agent of ``torchrun`` starts all processes again, as often as ``--max-restarts`` allows:
no code ends that sooner (``_invoke_run`` in torch/distributed/elastic/agent/server/api.py), and 0 would tell whoever
called ``torchrun`` that all went well. So an attempt that could only fail as the one before it did ends at once, in
silence and with that one's code, and the attempts that are left are gone in a moment.
"""

import os
from pathlib import Path

from attnkit.checkpoints import logs
from attnkit.errors import DataError, DivergedError, PeerFailedError, PeerLostError, RunError, SystemFailure, UsageError

REPEATING_EXIT_CODES = {kind.exit_code for kind in (UsageError, DataError, RunError, SystemFailure, DivergedError)}
"""Exit codes of failures that the same command meets again, unless somebody mends something first.

A full disk is among them: it does not empty itself within the second that a restart takes.
"""


def launch_facts() -> dict[str, logs.Fact]:
    """Return ``{"launch": name}`` for ``status.json``, the name of this call of ``torchrun``; nothing without one.

    All attempts of a launch have its name. The run id alone does not name it: it is "none" by default;
    the folder that torchrun makes for the errors of a launch (…/NAME/attempt_0/0/error.json) is new each time.
    """
    run_id, error_file = (os.environ.get(f"TORCHELASTIC_{name}") for name in ("RUN_ID", "ERROR_FILE"))
    if run_id is None:
        return {}
    folder = Path(error_file).parts[-4:-3] if error_file else ()
    return {"launch": folder[0] if folder else f"{run_id}_{os.getppid()}"}


def failure_facts(error: BaseException) -> dict[str, logs.Fact]:
    """Return the fields of ``status.json`` that describe a failure to the next attempt."""
    return {**launch_facts(), **({"lost_peer": True} if isinstance(error, PeerLostError) else {})}


def is_of_this_launch(status: logs.Status | None) -> bool:
    """Return whether an attempt of this launch wrote ``status``; False outside of a launch."""
    facts = launch_facts()
    return status is not None and bool(facts) and status.facts.get("launch") == facts["launch"]


def fail_fast_on_repeat(run: Path) -> None:
    """Raise ``PeerFailedError`` in an attempt that would only fail as an earlier one of this launch did."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0:
        return
    status = logs.read_status(run)
    if status is None or not is_of_this_launch(status) or status.state != "failed" or status.exit_code is None:
        return
    if status.exit_code in REPEATING_EXIT_CODES and not status.facts.get("lost_peer"):
        raise PeerFailedError(status.reason, status.exit_code)
