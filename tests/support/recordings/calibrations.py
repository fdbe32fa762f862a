"""Calibrations written down by hand: one tuple per operator, and the file they would be."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foretrace.tracer.calibration.file import KEY
from foretrace.transforms.measured.calibration import CALIBRATION_COLUMNS, Calibration
from foretrace.util.schema import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

FP32, BF16 = '[{"dtype":"float32"}]', '[{"dtype":"bfloat16"}]'

Row = dict[str, Any]
Operator = tuple[str, str, float]
"""Name, arguments, ns."""
After = tuple[str, str, float, int]
"""Name, arguments, ns, the position of what it replaces (−1: new)."""


def entries(
    before: Sequence[Operator],
    after: Mapping[str, Sequence[After]] | None = None,
    segments: Mapping[tuple[str, str], float] | None = None,
) -> list[Row]:
    """Return the rows of a calibration; *segments* are ns by (operator, change)."""
    common = {"phase": "forward", "of": -1, "change": "", "device_ns": np.nan, "spread": 0.0}
    rows: list[Row] = [
        {**common, "list": "before", "position": i, "operator": o, "arguments": a, "ns": ns}
        for i, (o, a, ns) in enumerate(before)
    ]
    for change, listed in (after or {}).items():
        new = {**common, "list": "after", "change": change}
        rows += [
            {**new, "position": i, "operator": o, "arguments": a, "ns": ns, "of": of}
            for i, (o, a, ns, of) in enumerate(listed)
        ]
    for (operator, change), ns in (segments or {}).items():
        one = {"list": "segment", "change": change, "operator": operator, "ns": ns}
        rows.append({**common, "position": 0, "arguments": "[]", **one})
    return rows


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return *rows* as the table of a calibration."""
    columns = {c.name: [row[c.name] for row in rows] for c in CALIBRATION_COLUMNS}
    return table(CALIBRATION_COLUMNS, columns, len(rows))


def calibration(*arguments: Any, **more: Any) -> Calibration:
    """Return the calibration of *arguments*, see `entries`."""
    return Calibration(frame(entries(*arguments, **more)))


def file_of(rows: Sequence[Row], described: Any = None) -> bytes:
    """Return *rows* as the content of a calibration file; *described* stands in its metadata."""
    if described is None:
        described = {"format": 1, "device": "cpu", "threads": 1, "torch": "2", "job": "job"}
    names = rows[0].keys() if rows else [c.name for c in CALIBRATION_COLUMNS]
    content = pa.table({name: [row[name] for row in rows] for name in names})
    content = content.replace_schema_metadata({KEY: json.dumps(described).encode()})
    target = io.BytesIO()
    pq.write_table(content, target, compression="zstd")
    return target.getvalue()
