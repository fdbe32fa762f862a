"""Collectives alone: what a rank measures.

Ranks of one machine share a clock. Each reports when its operations ended; an operation ends when
the last rank is done (`collective_sweep.intervals`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.tracer.lab.network.party import Party

FEWEST, MOST = 4, 40  # repetitions of one operation
FLOAT_BYTES = 4


def time_collective(party: Party, *, kind: str, size: int, seconds: float) -> list[int]:
    """Run operations of *kind* on *size* bytes back to back for about *seconds*.

    Returns when each ended, in ns. Back to back the links are never idle: what is measured is not
    the credit of a token bucket, except in the first, which began with an idle link. On a device
    launching and waiting for it count, too.
    """
    operation = OPERATIONS[kind](party, size)

    def run() -> None:
        operation()
        party.finish()

    party.meet()
    began = time.monotonic_ns()
    run()
    longest = max(party.gather(time.monotonic_ns() - began))
    count = min(max(round(seconds * 1e9 / longest), FEWEST), MOST)
    ends = []
    for _ in range(count):
        run()
        ends.append(time.monotonic_ns())
    return ends


def tensor_of(party: Party, size: int) -> Any:
    """Return a tensor of *size* bytes on the device of *party*."""
    import torch

    return torch.ones(max(size // FLOAT_BYTES, 1), device=party.device)


def _all_reduce(party: Party, size: int) -> Callable[[], object]:
    tensor = tensor_of(party, size)
    return lambda: party.group.allreduce([tensor]).wait()


def _all_gather(party: Party, size: int) -> Callable[[], object]:
    whole, shard = _whole_and_shard(party, size)
    return lambda: party.group._allgather_base(whole, shard).wait()  # noqa: SLF001 - as FSDP does


def _reduce_scatter(party: Party, size: int) -> Callable[[], object]:
    whole, shard = _whole_and_shard(party, size)
    return lambda: party.group._reduce_scatter_base(shard, whole).wait()  # noqa: SLF001 - same


def _whole_and_shard(party: Party, size: int) -> tuple[Any, Any]:
    shard = tensor_of(party, size // party.ranks)
    return shard.repeat(party.ranks), shard


def _broadcast(party: Party, size: int) -> Callable[[], object]:
    tensor = tensor_of(party, size)
    return lambda: party.group.broadcast(tensor, 0).wait()


def _send(party: Party, size: int) -> Callable[[], object]:
    """Send from rank 0 to rank 1; the others look on."""
    return _take_turns(party, size, {0: "send", 1: "recv"})


def _ping_pong(party: Party, size: int) -> Callable[[], object]:
    """Send from rank 0 to rank 1 and back; the others look on."""
    return _take_turns(party, size, {0: "send recv", 1: "recv send"})


def _take_turns(party: Party, size: int, turns: dict[int, str]) -> Callable[[], object]:
    tensor, peer = tensor_of(party, size), 1 - party.rank
    calls = [getattr(party.group, name) for name in turns.get(party.rank, "").split()]

    def run() -> None:
        for call in calls:
            call([tensor], peer, 0).wait()

    return run


OPERATIONS: dict[str, Callable[[Party, int], Callable[[], object]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "send": _send,
    "ping_pong": _ping_pong,
}
