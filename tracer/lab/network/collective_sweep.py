"""Collectives between processes of this machine, alone: what `calibrate --collectives` measures.

gloo over the loopback device or over shaped links, NCCL between the GPUs. Comes out: cells, as
`network_cells` has them.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.errors import RecordError
from foretrace.tracer.lab.network.loopback import Loopback
from foretrace.tracer.lab.network.namespaces import shaped_network, unavailable
from foretrace.tracer.lab.network.plan import KINDS, SIZES, Group, Setup
from foretrace.tracer.lab.network.rank_processes import running_on
from foretrace.tracer.lab.network.visit import Effort, cells_of, visit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.tracer.lab.network.cells import Measured

SWEPT = (*KINDS, "send")
BACKENDS = ("gloo", "nccl")


def sweep_collectives(
    ranks: int,
    *,
    mbit: int | None = None,
    backend: str = "gloo",
    seconds: float = 0.2,
    sizes: Sequence[int] | None = None,
) -> list[Measured]:
    """Run every kind of collective at *sizes* in bytes for about *seconds* each, among *ranks*.

    With *mbit* each rank sends at no more than that, in a network namespace of its own, which needs
    root; otherwise they talk over the loopback device.

    Raises
    ------
    RecordError
        There can be no shaped network here, there are too few GPUs, or a rank failed.
    """
    if backend == "nccl" and (found := gpus()) < ranks:
        raise RecordError(f"NCCL among {ranks} ranks needs as many GPUs, and here are {found}")
    if mbit is not None and (reason := unavailable()) is not None:
        raise RecordError(f"no shaped network here: {reason}")
    setups = [
        Setup(kind, "sweep", (mbit,), {"bytes": size}) for kind in SWEPT for size in sizes or SIZES
    ]
    group = Group(None, ranks, tuple(setups))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        network = (
            Loopback(ranks)
            if mbit is None
            else stack.enter_context(shaped_network(group.all_racks))
        )
        running = stack.enter_context(
            running_on(group, network, folder / "ranks.log", backend=backend)
        )
        effort = Effort(sweep_seconds=seconds)
        return [
            visit(cell, setup, running, effort)
            for setup in setups
            for cell in cells_of(group, setup)
        ]


def gpus() -> int:
    """Return how many GPUs torch can use here."""
    import torch

    return int(torch.cuda.device_count())


def gpu_name() -> str:
    """Return what torch calls the first of them."""
    import torch

    return str(torch.cuda.get_device_name(0))
