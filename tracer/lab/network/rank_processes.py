"""The processes of a group of ranks, from outside: started on a network, told what to do, ended.

Commands and replies are JSON lines (see `rank_worker`). Whatever goes wrong, a rank that is late
included, ends the whole group: one inside gloo does not come back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError
from foretrace.tracer.child_process import GRACE_SECONDS, ONE_THREAD, plain_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from foretrace.tracer.lab.network.loopback import Loopback
    from foretrace.tracer.lab.network.namespaces import ShapedNetwork

    Network = ShapedNetwork | Loopback

WORKER = "foretrace.tracer.lab.network.rank_worker"
START_SECONDS = 60.0
PATIENCE = 3.0  # times what a command should take ...
LEAST_PATIENCE_SECONDS = 20.0  # ... but no less than this
LEFT_BY_PEER = "Connection"  # gloo's word for a peer that is gone


class Ranks:
    """The running processes of a group."""

    def __init__(self, network: Network, log: Path, worker: str, *arguments: str) -> None:
        """Start the module *worker* with its rank and *arguments* for every rank of *network*.

        What the processes write to their standard error is added to *log*.
        """
        self.network = network
        with log.open("a", encoding="utf-8") as errors:
            self._processes = [
                _start(network, rank, errors, [worker, str(rank), *arguments])
                for rank in network.ranks
            ]
        self._replies: list[SimpleQueue[str]] = [SimpleQueue() for _ in network.ranks]
        self._readers = [
            Thread(target=_forward, args=(process.stdout, queue), daemon=True)
            for process, queue in zip(self._processes, self._replies, strict=True)
        ]
        for reader in self._readers:
            reader.start()

    def meet(self) -> None:
        """Wait until all ranks have found each other."""
        self._collect(START_SECONDS)

    def tell(self, do: str, *, expected_seconds: float = 0.0, **arguments: Any) -> list[Any]:
        """Let all ranks *do* something; return their replies, in order.

        Raises
        ------
        RecordError
            A rank failed, ended or was late.
        """
        line = json.dumps({"do": do, **arguments}) + "\n"
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # the reply says why it ended
                process.stdin.write(line)
                process.stdin.flush()
        return self._collect(max(PATIENCE * expected_seconds, LEAST_PATIENCE_SECONDS))

    def close(self) -> None:
        """End all processes: by closing their input, or by force."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
        until = time.monotonic() + GRACE_SECONDS
        for process in self._processes:
            try:
                process.wait(max(until - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join()

    def kill(self) -> None:
        """End all processes at once."""
        for process in self._processes:
            process.kill()

    def _collect(self, seconds: float) -> list[Any]:
        until = time.monotonic() + seconds
        return [self._reply(rank, until) for rank in self.network.ranks]

    def _reply(self, rank: int, until: float) -> Any:
        reply = self._next(rank, max(until - time.monotonic(), 0))
        if "error" in reply:
            raise RecordError(self._cause(rank, reply["error"]))
        return reply["reply"]

    def _next(self, rank: int, seconds: float) -> dict[str, Any]:
        """Return the next line of *rank*; silence and the end of its process are errors."""
        try:
            line = self._replies[rank].get(timeout=seconds)
        except Empty:
            return {"error": f"rank {rank} did not answer in time"}
        return json.loads(line) if line else {"error": f"rank {rank} ended"}

    def _cause(self, rank: int, text: str) -> str:
        """Return what went wrong first: the peers of a rank that fails only see it leave."""
        if LEFT_BY_PEER not in text:
            return text
        others = [self._next(other, 1.0) for other in self.network.ranks if other != rank]
        errors = [reply["error"] for reply in others if "error" in reply]
        return next((error for error in errors if LEFT_BY_PEER not in error), text)


@contextmanager
def start_ranks(
    network: Network, log: Path, *, servers: int = 0, backend: str = "gloo", worker: str = WORKER
) -> Iterator[Ranks]:
    """Start a process per rank of *network*, wait until they have met, and end them afterwards.

    The last *servers* ranks only serve parameters. What the processes write to their standard error
    is added to *log*. *worker* is the module that they run.
    """
    numbers = str(len(network.ranks) - servers), str(servers)
    meeting = f"{network.address(0)}:{network.port}"
    where = meeting, network.device, str(os.getpid()), backend
    ranks = Ranks(network, log, worker, *numbers, *where)
    try:
        ranks.meet()
        yield ranks
    except BaseException:
        ranks.kill()
        raise
    finally:
        ranks.close()


def _start(
    network: Network, rank: int, errors: Any, module: Sequence[str]
) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own module
        network.inside(rank, [sys.executable, "-m", *module]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        encoding="utf-8",
        env=plain_environment(**ONE_THREAD, GLOO_SOCKET_IFNAME=network.device),
        start_new_session=True,
    )


def _forward(lines: Any, queue: SimpleQueue[str]) -> None:
    """Put every line into *queue*, and an empty one at the end."""
    with lines:
        for line in lines:
            queue.put(line)
    queue.put("")
