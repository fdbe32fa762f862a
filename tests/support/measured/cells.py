"""A measured cell, for tests of what is made of such cells."""

from __future__ import annotations

from typing import Any

from benchmarks.shaped_network.cells import CellRun, MeasuredCell


def run(**settings: Any) -> CellRun:
    """Return a visit of two ranks to a step of 100 ns that sent 2 MB as it should."""
    values: dict[str, Any] = {
        "step_ns": ((100, 100), (100, 100)),
        "forward_ns": ((40, 40), (40, 40)),
        "lone_ns": ((80, 80), (80, 80)),
        "lone_forward_ns": ((40, 40), (40, 40)),
        "tx_bytes": (2_000_000, 2_000_000),
        "expected_bytes": (2_000_000, 2_000_000),
    }
    return CellRun(**{**values, **settings})


def cell(*runs: CellRun) -> MeasuredCell:
    """Return ``gpt`` trained by DDP on two ranks at 300 Mbit/s, visited in *runs*."""
    return MeasuredCell(
        name="ddp gpt x2 cap_mb=25 300mbit",
        scheme="ddp",
        model="gpt",
        ranks=2,
        rate_mbit=300,
        burst_bytes=131_072,
        congestion_control="reno",
        racks=(0, 0),
        uplink_mbit=None,
        options={"cap_mb": 25},
        runs=runs,
        job="gpt-x2",
        facts={"bucket_bytes": [10, 20]},
    )
