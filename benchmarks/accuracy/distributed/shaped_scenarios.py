"""What turns the job alone into that of a measured cell: scenarios, as a user writes them.

In: a cell of an archive of `benchmarks.shaped_network`. Out: texts for `parse_scenario`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.shaped_network.cell_archive import Cell

CLUSTERS = {False: "shaped-links", True: "shaped-racks"}
"""The cluster of the runs, without and with racks."""
UNSHAPED = "this-machine"
"""The cluster of runs whose links are as fast as the machine."""


def scenario_of(cell: Cell) -> tuple[str, ...]:
    """Return the what-ifs that turn the job alone into that of *cell*, as a user writes them."""
    return SCENARIOS[cell.scheme](cell)


def _where(cell: Cell, **more: Any) -> str:
    """Return parameters: *more*, and the links of *cell*."""
    given = {**more, "cluster": CLUSTERS[bool(max(cell.racks))]}
    if cell.rate_mbit is not None:
        given["network"] = f"{cell.rate_mbit}Mbps"
    else:
        given["cluster"] = UNSHAPED
    return ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)


def _ddp(cell: Cell) -> tuple[str, ...]:
    options = cell.options
    given = {"bucket_cap_mb": options["cap_mb"], "compression": options.get("compression")}
    spread = f"ddp({_where(cell, workers=cell.ranks, **given)})"
    if max(cell.racks):
        return spread, f"placement(to={devices_of(cell.racks)})"
    if "accumulation" in options:
        return f"gradient_accumulation(k={options['accumulation']})", spread
    return (spread, *_slow(cell))


def _slow(cell: Cell) -> tuple[str, ...]:
    """Return the slow rank of *cell*, where it has one: the second."""
    delay = cell.options.get("sleep_ms")
    return (f"straggler(rank=1, delay_ms={delay})",) if delay else ()


def devices_of(racks: Sequence[int]) -> list[int]:
    """Return the device of each rank, where racks are filled in the order of their devices.

    >>> devices_of((0, 1, 0, 1))
    [0, 2, 1, 3]
    """
    each = len(racks) // (max(racks) + 1)
    return [rack * each + racks[:rank].count(rack) for rank, rack in enumerate(racks)]


def _fsdp(cell: Cell) -> tuple[str, ...]:
    return (f"fsdp({_where(cell, workers=cell.ranks)})",)


def _pipeline(cell: Cell) -> tuple[str, ...]:
    options = cell.options
    given = {
        "stages": cell.ranks,
        "micro_batches": options["micro_batches"],
        "schedule": options["schedule"],
        "blocking": options["waits"],
        "cuts": [cell.facts["cut"]],
    }
    return (f"pipeline({_where(cell, **given)})",)


def _parameter_server(cell: Cell) -> tuple[str, ...]:
    options = cell.options
    given = {"mode": options["mode"], "ingress": bool(options.get("ingress"))}
    spread = f"parameter_server({_where(cell, workers=cell.ranks, **given)})"
    return (spread, *_slow(cell))


SCENARIOS: dict[str, Callable[[Cell], tuple[str, ...]]] = {
    "ddp": _ddp,
    "fp16": _ddp,
    "powersgd": _ddp,
    "no_sync": _ddp,
    "slow_rank": _ddp,
    "fsdp": _fsdp,
    "pipeline": _pipeline,
    "parameter_server": _parameter_server,
}
"""Scheme of a cell to the scenario that predicts it."""
