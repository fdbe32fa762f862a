"""Computation with collectives behind it: what a rank measures of both."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from foretrace.tracer.lab.network.collective_timer import FLOAT_BYTES, tensor_of, time_collective

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.tracer.lab.network.party import Party

MATMUL_SIZE = 192  # of the products that stand for computing in cache
ADDED_BYTES = 16 << 20  # of the sums that stand for streaming memory


def contend(party: Party, *, compute: str, size: int, seconds: float) -> dict[str, Any]:
    """Compute with all-reduces of *size* bytes behind it, for about *seconds*.

    *compute* is "products" (in cache) or "sums" (16 MB, from memory), in quanta of a millisecond or
    so. Gives the ends of the all-reduces alone and while computing, and what a quantum takes in
    quiet, before and after, and in company; all in ns.
    """
    quantum = {"products": _multiply, "sums": _add}[compute]()
    alone = time_collective(party, kind="all_reduce", size=size, seconds=seconds / 4)
    quiet = [_quantum_ns(quantum, seconds / 8)]
    party.meet()
    ends, busy = _compute_in_company(party, quantum, size, len(alone))
    party.meet()
    quiet.append(_quantum_ns(quantum, seconds / 8))
    return {"alone_ends_ns": alone, "ends_ns": ends, "quiet_ns": quiet, "busy_ns": busy}


def _multiply() -> Callable[[], object]:
    left, right, out = (torch.randn(MATMUL_SIZE, MATMUL_SIZE) for _ in range(3))
    return lambda: torch.mm(left, right, out=out)


def _add() -> Callable[[], object]:
    tensor = torch.ones(ADDED_BYTES // FLOAT_BYTES)
    return lambda: tensor.add_(1e-3)


def _quantum_ns(quantum: Callable[[], object], seconds: float) -> int:
    """Return what *quantum* takes, on average over about *seconds*."""
    began, count = time.perf_counter_ns(), 0
    while (passed := time.perf_counter_ns() - began) < seconds * 1e9 or not count:
        quantum()
        count += 1
    return passed // count


def _compute_in_company(
    party: Party, quantum: Callable[[], object], size: int, count: int
) -> tuple[list[int], int]:
    """Compute while *count* all-reduces run in turn; return their ends and the time per quantum."""
    tensor = tensor_of(party, size)
    ends, quanta, began = [], 0, time.perf_counter_ns()
    for _ in range(count):
        work = party.group.allreduce([tensor])
        while not work.is_completed():
            quantum()
            quanta += 1
        ends.append(time.monotonic_ns())
    return ends, (time.perf_counter_ns() - began) // max(quanta, 1)
