"""Rows of the study of distributed runs, for tests of its page."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.distributed.shaped_links import NetworkRow


def network_row(error: float = 0.02, **settings: Any) -> NetworkRow:
    """Return a cell of DDP measured at 200 ms and predicted *error* off; the series is 10 % off."""
    values: dict[str, Any] = {
        "name": "ddp gpt x2 cap_mb=1 300mbit",
        "scheme": "ddp",
        "model": "gpt",
        "ranks": 2,
        "rate_mbit": 300,
        "scenario": ("ddp(workers=2, cluster='shaped-links', network='300Mbps')",),
        "measured_ns": 200e6,
        "predicted_ns": 200e6 * (1 + error),
        "alone_ns": 50e6,
        "series_ns": 220e6,
        "noise": 0.01,
    }
    return NetworkRow(**{**values, **settings})
