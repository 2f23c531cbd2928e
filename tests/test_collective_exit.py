"""Two real processes over gloo leave a block together. Run as a script, this file is one of them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

FINE, DATA, BUG, STOP = "nothing", "DataError", "ZeroDivisionError", "SystemExit"
# What happens on rank 0 and on rank 1, and what each of them sees: the error with its exit code.
CASES = [
    ((FINE, FINE), ((FINE, 0), (FINE, 0))),
    ((DATA, FINE), ((DATA, 3), ("PeerFailedError", 3))),
    ((FINE, BUG), (("PeerFailedError", 1), (BUG, 1))),
    ((DATA, BUG), ((DATA, 3), ("PeerFailedError", 3))),
    ((STOP, FINE), ((STOP, 143), ("PeerFailedError", 143))),
    ((FINE, FINE), ((FINE, 0), (FINE, 0))),
]


def meet(what: str) -> None:
    from attnkit.errors import DataError

    errors = {DATA: DataError("text"), BUG: ZeroDivisionError(), STOP: SystemExit(143)}
    if what in errors:
        raise errors[what]


def worker(report: Path) -> None:
    from attnkit.distributed.process_group import join_process_group
    from attnkit.errors import AttnkitError, exit_code

    seen: list[tuple[str, int]] = []
    with join_process_group("cpu") as ranks:
        for happens, _ in CASES:
            try:
                with ranks.synchronized():
                    meet(happens[ranks.rank])
                seen.append((FINE, 0))
            except BaseException as error:
                seen.append((type(error).__name__, exit_code(error)))
        if ranks.rank == 1:
            report.write_text(json.dumps(seen))
            os._exit(0)
        try:
            with ranks.synchronized():
                pass
        except AttnkitError as error:
            seen.append((error.what, error.exit_code))
        report.write_text(json.dumps(seen))


def test_ranks_leave_a_block_together(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen([sys.executable, __file__, str(tmp_path / str(rank))], env={**environment, "RANK": str(rank)})
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            rank.wait(timeout=300)
    finally:
        for rank in ranks:
            rank.kill()
    seen = [[tuple(pair) for pair in json.loads((tmp_path / str(rank)).read_text())] for rank in range(2)]
    assert seen[0].pop() == ("another process of this run ended or is unreachable", 5)
    for number, (happens, expected) in enumerate(CASES):
        assert (seen[0][number], seen[1][number]) == expected, happens


def test_one_process_alone_sees_its_own_error() -> None:
    import pytest

    from attnkit.distributed.process_group import ProcessGroup
    from attnkit.errors import DataError

    with pytest.raises(DataError, match="text"), ProcessGroup() as ranks, ranks.synchronized():
        meet(DATA)


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
