"""``foretrace calibrate --collectives``: a sweep of collectives in, a table of their costs out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.errors import RecordError

if TYPE_CHECKING:
    from pathlib import Path

RANKS = 2


def measured_collectives(
    out: Path | None, *, ranks: int | None, mbit: int | None, seconds: float
) -> str:
    """Measure what collectives cost on this machine, write the table *out*, and say what it has.

    gloo is measured between processes of this machine, and NCCL where there are several GPUs.

    Raises
    ------
    RecordError
        There is no place to write to, or nothing could be measured.
    """
    from foretrace.tracer.lab.network.collective_sweep import gpu_name, gpus, sweep_collectives
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
        cells = sweep_collectives(count, mbit=mbit, seconds=seconds)
    tables = [cost_table(cells)]
    devices = gpus()
    if devices >= (ranks or RANKS) and mbit is None:
        with stage(f"timing collectives of NCCL among {ranks or devices} GPUs"):
            cells = sweep_collectives(ranks or devices, backend="nccl", seconds=seconds)
        known = find_device(gpu_name())
        device = known.name if known else gpu_name()
        tables.append(cost_table(cells, device=device, topology=""))
    table = merge(tables)
    write_table(table, out)
    return f"wrote {out}: {describe(table)}\n"
