"""Columns of the tables of an export, put below each other under our names."""

from __future__ import annotations

from typing import Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.columns import LATEST_NS, from_codes, merge_codes, small
from foretrace.tracer.trace import EVENT_KINDS

Part = dict[str, Any]
"""Columns of one table, and one ``kind`` for all its rows."""
IDS = ("thread", "stream", "correlation", "graph_node", "wait_stream", "wait_event", "blocks",
       "block_threads", "registers", "shared_bytes", "device", "context", "process")  # fmt: skip


def join_parts(parts: list[Part], source: str) -> dict[str, Any]:
    """Put the parts below each other; what a part lacks is unknown.

    Raises
    ------
    TraceError
        A time is too long or too late for 64 bits.
    """
    _refuse_endless(parts, source)
    sizes = [len(part["start_ns"]) for part in parts]

    def column(name: str, unknown: Any) -> np.ndarray:
        filled = [part.get(name, np.full(n, unknown)) for part, n in zip(parts, sizes, strict=True)]
        return np.concatenate(filled)

    values: dict[str, Any] = {name: column(name, -1) for name in IDS}
    values["bytes"] = column("bytes", np.nan)
    values["start_ns"], values["duration_ns"] = column("start_ns", 0), column("duration_ns", 0)
    values["device"] = small(values["device"], np.int16)
    values["kind"] = from_codes(np.repeat([part["kind"] for part in parts], sizes), EVENT_KINDS)
    offsets = np.cumsum([0, *(len(part["name"].categories) for part in parts)])
    codes = [
        part["name"].codes.astype(np.int64) + offset
        for part, offset in zip(parts, offsets, strict=False)
    ]
    names = [name for part in parts for name in part["name"].categories]
    values["name"] = merge_codes(np.concatenate(codes), names)
    return values


def _refuse_endless(parts: list[Part], source: str) -> None:
    """Refuse times with which nothing can be reckoned in 64 bits."""
    for part in parts:
        for name in ("start_ns", "duration_ns"):
            times = part[name]
            if len(times) and not -LATEST_NS <= times.min() <= times.max() <= LATEST_NS:
                raise TraceError(f"{source}: a time of {times.max():.3g} ns cannot be")
