"""``foretrace calibrate --collectives``: a sweep of collectives in, a table of their costs out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.errors import RecordError

if TYPE_CHECKING:
    from pathlib import Path

RANKS = 2


def calibrate_collectives(
    out: Path | None, *, ranks: int | None, mbit: int | None, seconds: float
) -> str:
    """Measure what collectives cost on this machine, write the table *out*, and say what it has.

    gloo is measured between processes of this machine, and NCCL where there are several GPUs.

    Raises
    ------
    RecordError
        There is no place to write to, or nothing could be measured.
    """
    from foretrace.tracer.lab.network.collective_sweep import (
        count_gpus,
        gpu_name,
        sweep_collectives,
    )
    from foretrace.transforms.cluster.cost_tables import describe, merge, write_table
    from foretrace.transforms.collectives.sweep_costs import cost_table
    from foretrace.transforms.costs.devices import find_device
    from foretrace.util.atomic_write import check_writable
    from foretrace.util.progress import stage

    if out is None:
        raise RecordError("--collectives needs --out FILE")
    check_writable(out)
    count = ranks or RANKS
    with stage(f"timing collectives of gloo among {count} processes"):
        tables = [cost_table(sweep_collectives(count, mbit=mbit, seconds=seconds))]
    gpus = count_gpus()
    if gpus >= count and mbit is None:
        with stage(f"timing collectives of NCCL among {ranks or gpus} GPUs"):
            costs = sweep_collectives(ranks or gpus, backend="nccl", seconds=seconds)
        device = find_device(gpu_name())
        name = device.name if device else gpu_name()
        tables.append(cost_table(costs, device=name, topology=""))
    table = merge(tables)
    write_table(table, out)
    return f"wrote {out}: {describe(table)}\n"
