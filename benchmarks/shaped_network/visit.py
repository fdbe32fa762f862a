"""Visit a cell: shape the links, let the ranks measure, put their replies together.

Goes in: an empty cell (`cells_of`) and the running ranks. Comes out: the cell with one more run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, Any

from benchmarks.shaped_network.cells import CellRun, MeasuredCell
from benchmarks.shaped_network.plan import CONTENTION_BYTES, UPLINK_MBIT
from foretrace.tracer.lab.network.collective_sweep import intervals, time_collective
from foretrace.tracer.lab.network.namespaces import BURST_BYTES, CONGESTION_CONTROL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.shaped_network.plan import Group, Setup
    from foretrace.tracer.lab.network.rank_processes import Ranks


@dataclass(frozen=True)
class Effort:
    """How much is measured in one visit; a cell of a training gets ``rounds`` of them."""

    seconds: float = 1.0
    fewest: int = 4
    most: int = 10
    lone_steps: int = 4
    rounds: int = 2
    sweep_seconds: float = 0.2
    contention_seconds: float = 3.0

    def rounds_of(self, setup: Setup) -> int:
        """Return how many visits a cell of *setup* gets."""
        return self.rounds if setup.trains else 1


def cells_of(group: Group, setup: Setup) -> list[MeasuredCell]:
    """Return the cells of *setup*, one per link speed, without measurements."""
    racks = group.all_racks
    cell = MeasuredCell(
        name="",
        scheme=setup.scheme,
        model=group.model if setup.trains else None,
        ranks=group.ranks,
        rate_mbit=None,
        burst_bytes=BURST_BYTES,
        congestion_control=CONGESTION_CONTROL,
        racks=racks,
        uplink_mbit=UPLINK_MBIT if max(racks) else None,
        options={**setup.options, **({"ingress": True} if setup.ingress else {})},
        runs=(),
        job=group.job if setup.trains else None,
    )
    return [replace(cell, rate_mbit=rate, name=_name(cell, rate)) for rate in setup.rates]


def _name(cell: MeasuredCell, rate: int | None) -> str:
    parts = [cell.scheme, *([cell.model] if cell.model else []), f"x{cell.ranks}"]
    if max(cell.racks):
        parts.append("racks=" + "".join(map(str, cell.racks)))
    parts += [f"{key}={value}" for key, value in cell.options.items()]
    return " ".join([*parts, f"{rate}mbit" if rate else "unshaped"])


def visit(cell: MeasuredCell, setup: Setup, ranks: Ranks, effort: Effort) -> MeasuredCell:
    """Return *cell* with one more run, measured now."""
    network = ranks.network
    network.shape(cell.rate_mbit, uplink_mbit=cell.uplink_mbit, ingress=setup.ingress)
    dropped = network.drops()
    measure = {"sweep": _sweep, "contend": _contend}.get(setup.training, _train)
    fewest = max(effort.fewest, setup.fewest)
    effort = replace(effort, fewest=fewest, most=max(effort.most, fewest))
    run, facts = measure(cell, ranks, effort)
    run = replace(run, drops=network.drops() - dropped)
    return replace(cell, runs=(*cell.runs, run), facts=facts)


def _train(_cell: MeasuredCell, ranks: Ranks, effort: Effort) -> tuple[CellRun, dict[str, Any]]:
    replies = ranks.tell(
        "measure",
        seconds=effort.seconds,
        fewest=effort.fewest,
        most=effort.most,
        lone_steps=effort.lone_steps,
        expected_seconds=4 * effort.seconds + effort.fewest,
    )
    run = CellRun(
        step_ns=tuple(tuple(reply["step_ns"]) for reply in replies),
        forward_ns=tuple(tuple(reply["forward_ns"]) for reply in replies),
        lone_ns=tuple(tuple(reply["lone_ns"]) for reply in replies),
        lone_forward_ns=tuple(tuple(reply["lone_forward_ns"]) for reply in replies),
        tx_bytes=tuple(reply["tx_bytes"] for reply in replies),
        expected_bytes=tuple(reply["expected_bytes"] for reply in replies),
    )
    return run, {key: value for reply in replies for key, value in reply["facts"].items()}


def _sweep(cell: MeasuredCell, ranks: Ranks, effort: Effort) -> tuple[CellRun, dict[str, Any]]:
    size = cell.options["bytes"]
    return CellRun((time_collective(ranks, cell.scheme, size, effort.sweep_seconds),)), {}


def _contend(cell: MeasuredCell, ranks: Ranks, effort: Effort) -> tuple[CellRun, dict[str, Any]]:
    replies = ranks.tell(
        "contend",
        compute=cell.options["compute"],
        size=CONTENTION_BYTES,
        seconds=effort.contention_seconds,
        expected_seconds=2 * effort.contention_seconds,
    )
    alone_ns = _operation_ns(cell, [reply["alone_ends_ns"] for reply in replies])
    ends = [reply["ends_ns"] for reply in replies]
    facts = {
        "bytes": CONTENTION_BYTES,
        "compute_share": [round(mean(r["quiet_ns"]) / r["busy_ns"], 4) for r in replies],
        "alone_ns": alone_ns,
        "stretch": round(_operation_ns(cell, ends) / alone_ns, 4),
    }
    return CellRun((intervals(ends),)), facts


def _operation_ns(cell: MeasuredCell, ends: Sequence[Sequence[int]]) -> int:
    return replace(cell, runs=(CellRun((intervals(ends),)),)).step_ns
