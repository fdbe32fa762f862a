"""Collectives between processes of this machine, alone: what `calibrate --collectives` measures.

gloo over the loopback device or over shaped links, NCCL between the GPUs. Comes out: what each
took, by kind, ranks, size and rate.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, NamedTuple

from foretrace.errors import RecordError
from foretrace.tracer.lab.network.loopback import Loopback
from foretrace.tracer.lab.network.namespaces import shaped_network, unavailable
from foretrace.tracer.lab.network.rank_processes import start_ranks
from foretrace.tracer.step_stats import trimmed_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.tracer.lab.network.rank_processes import Ranks

KIB = 1 << 10
SIZES = tuple(KIB << shift for shift in range(2, 16, 2))  # 4 KiB to 16 MiB
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send")
LONGEST_OPERATION_S = 1.0  # larger ones on slow links only repeat the formula


class CollectiveCost(NamedTuple):
    """What a collective took that ran alone; ``spread`` is the standard deviation over the mean.

    ``bytes`` of all_gather and reduce_scatter are those of the whole; ``rate_mbit`` is ``None`` on
    an unshaped link; ``ns`` is a trimmed mean.
    """

    kind: str
    ranks: int
    bytes: int
    rate_mbit: int | None
    ns: int
    spread: float


def sweep_collectives(
    ranks: int,
    *,
    mbit: int | None = None,
    backend: str = "gloo",
    seconds: float = 0.2,
    sizes: Sequence[int] | None = None,
) -> list[CollectiveCost]:
    """Run every kind of collective at *sizes* in bytes for about *seconds* each, among *ranks*.

    With *mbit* each rank sends at no more than that, in a network namespace of its own, which needs
    root; otherwise they talk over the loopback device.

    Raises
    ------
    RecordError
        There can be no shaped network here, there are too few GPUs, or a rank failed.
    """
    if backend == "nccl" and (gpus := count_gpus()) < ranks:
        raise RecordError(f"NCCL among {ranks} ranks needs as many GPUs, and here are {gpus}")
    if mbit is not None and (reason := unavailable()) is not None:
        raise RecordError(f"no shaped network here: {reason}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        network = (
            Loopback(ranks) if mbit is None else stack.enter_context(shaped_network((0,) * ranks))
        )
        processes = stack.enter_context(start_ranks(network, folder / "ranks.log", backend=backend))
        network.shape(mbit)
        costs = []
        for kind in KINDS:
            for size in sizes or SIZES:
                times = time_collective(processes, kind, size, seconds)
                ns, spread = round(trimmed_mean(times)), relative_deviation(times)
                costs.append(CollectiveCost(kind, ranks, size, mbit, ns, spread))
    return costs


def time_collective(ranks: Ranks, kind: str, size: int, seconds: float) -> tuple[int, ...]:
    """Let *ranks* run a collective of *size* bytes again and again; return what each took, in ns.

    Raises
    ------
    RecordError
        A rank failed, ended or was late.
    """
    ends = ranks.tell(
        "time_collective",
        kind=kind,
        size=size,
        seconds=seconds,
        expected_seconds=10 * LONGEST_OPERATION_S,
    )
    return intervals(ends)


def intervals(ends_by_rank: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return what each operation took that ran back to back, in ns, but the first.

    It is over when the last rank is done; the first had links that were idle before.

    >>> intervals([[10, 25, 40], [12, 24, 41]])
    (13, 16)
    """
    ends = [max(ranks) for ranks in zip(*ends_by_rank, strict=True)]
    return tuple(after - before for before, after in pairwise(ends))


def relative_deviation(times: Sequence[int]) -> float:
    """Return the standard deviation of *times* as a share of their mean; 0 for a single one.

    >>> relative_deviation([90, 110]), relative_deviation([90])
    (0.141421, 0.0)
    """
    return round(stdev(times) / mean(times), 6) if len(times) > 1 else 0.0


def count_gpus() -> int:
    """Return how many GPUs torch can use here."""
    import torch

    return int(torch.cuda.device_count())


def gpu_name() -> str:
    """Return what torch calls the first of them."""
    import torch

    return str(torch.cuda.get_device_name(0))
