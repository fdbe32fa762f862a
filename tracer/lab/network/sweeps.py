"""Collectives alone, and computation with collectives behind it: what a rank measures.

Ranks of one machine share a clock. Each reports when its operations ended; an operation ends when
the last rank is done (`network_cells.intervals`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.tracer.lab.network.training import Party

FEWEST, MOST = 4, 40  # repetitions of one operation
FLOAT_BYTES = 4
PRODUCT_SIZE = 192  # of the products that stand for computing in cache
ADDED_BYTES = 16 << 20  # of the sums that stand for streaming memory


def sweep(party: Party, *, kind: str, size: int, seconds: float) -> list[int]:
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
    longest = max(party.gathered(time.monotonic_ns() - began))
    count = min(max(round(seconds * 1e9 / longest), FEWEST), MOST)
    ends = []
    for _ in range(count):
        run()
        ends.append(time.monotonic_ns())
    return ends


def contend(party: Party, *, compute: str, size: int, seconds: float) -> dict[str, Any]:
    """Compute with all-reduces of *size* bytes behind it, for about *seconds*.

    *compute* is "products" (in cache) or "sums" (16 MB, from memory), in quanta of a millisecond or
    so. Gives the ends of the all-reduces alone and while computing, and what a quantum takes in
    quiet, before and after, and in company; all in ns.
    """
    quantum = {"products": _products, "sums": _sums}[compute]()
    alone = sweep(party, kind="all_reduce", size=size, seconds=seconds / 4)
    quiet = [_quantum_ns(quantum, seconds / 8)]
    party.meet()
    ends, busy = _in_company(party, quantum, size, len(alone))
    party.meet()
    quiet.append(_quantum_ns(quantum, seconds / 8))
    return {"alone_ends_ns": alone, "ends_ns": ends, "quiet_ns": quiet, "busy_ns": busy}


def _tensor(party: Party, size: int) -> Any:
    return torch.ones(max(size // FLOAT_BYTES, 1), device=party.device)


def _all_reduce(party: Party, size: int) -> Callable[[], object]:
    tensor = _tensor(party, size)
    return lambda: party.group.allreduce([tensor]).wait()


def _all_gather(party: Party, size: int) -> Callable[[], object]:
    whole, shard = _whole_and_shard(party, size)
    return lambda: party.group._allgather_base(whole, shard).wait()  # noqa: SLF001 - as FSDP does


def _reduce_scatter(party: Party, size: int) -> Callable[[], object]:
    whole, shard = _whole_and_shard(party, size)
    return lambda: party.group._reduce_scatter_base(shard, whole).wait()  # noqa: SLF001 - same


def _whole_and_shard(party: Party, size: int) -> tuple[Any, Any]:
    shard = _tensor(party, size // party.ranks)
    return shard.repeat(party.ranks), shard


def _broadcast(party: Party, size: int) -> Callable[[], object]:
    tensor = _tensor(party, size)
    return lambda: party.group.broadcast(tensor, 0).wait()


def _send(party: Party, size: int) -> Callable[[], object]:
    """Send from rank 0 to rank 1; the others look on."""
    return _turns(party, size, {0: "send", 1: "recv"})


def _ping_pong(party: Party, size: int) -> Callable[[], object]:
    """Send from rank 0 to rank 1 and back; the others look on."""
    return _turns(party, size, {0: "send recv", 1: "recv send"})


def _turns(party: Party, size: int, turns: dict[int, str]) -> Callable[[], object]:
    tensor, peer = _tensor(party, size), 1 - party.rank
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


def _products() -> Callable[[], object]:
    left, right, out = (torch.randn(PRODUCT_SIZE, PRODUCT_SIZE) for _ in range(3))
    return lambda: torch.mm(left, right, out=out)


def _sums() -> Callable[[], object]:
    tensor = torch.ones(ADDED_BYTES // FLOAT_BYTES)
    return lambda: tensor.add_(1e-3)


def _quantum_ns(quantum: Callable[[], object], seconds: float) -> int:
    """Return what *quantum* takes, on average over about *seconds*."""
    began, count = time.perf_counter_ns(), 0
    while (passed := time.perf_counter_ns() - began) < seconds * 1e9 or not count:
        quantum()
        count += 1
    return passed // count


def _in_company(
    party: Party, quantum: Callable[[], object], size: int, count: int
) -> tuple[list[int], int]:
    """Compute while *count* all-reduces run in turn; return their ends and the time per quantum."""
    tensor = _tensor(party, size)
    ends, quanta, began = [], 0, time.perf_counter_ns()
    for _ in range(count):
        work = party.group.allreduce([tensor])
        while not work.is_completed():
            quantum()
            quanta += 1
        ends.append(time.monotonic_ns())
    return ends, (time.perf_counter_ns() - began) // max(quanta, 1)
