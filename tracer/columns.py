"""From lists of whatever a file says to typed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.schema import UNKNOWN_ID, table
from foretrace.tracer.trace import EVENT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foretrace.tracer.oddities import Tally

INT64_MAX = 2**63 - 1
ALL_STREAMS = (2**32 - 1, 2**64 - 1)
"""How CUPTI writes "no particular stream"."""


def categorical(values: Sequence[str | None]) -> pd.Categorical:
    """Encode strings in the order of first appearance; ``None`` is unknown."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    codes, uniques = pd.factorize(array)
    return from_codes(codes, list(uniques))


def from_codes(codes: np.ndarray, categories: Sequence[str]) -> pd.Categorical:
    """Return a categorical of *codes* (−1 unknown) without checking every row."""
    dtype = pd.CategoricalDtype(pd.Index(list(categories), dtype=object))
    return pd.Categorical.from_codes(codes, dtype=dtype)


def integers(values: Sequence[Any], tally: Tally) -> np.ndarray:
    """Return int64 ids; ``None``, nonsense and what exceeds int64 is −1 (nonsense is counted)."""
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.fromiter((_integer(v, tally) for v in values), np.int64, len(values))


def _integer(value: Any, tally: Tally) -> int:
    if value is None or value == "":
        return UNKNOWN_ID
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        tally.add("bad_number")
        return UNKNOWN_ID
    return number if -INT64_MAX <= number <= INT64_MAX else UNKNOWN_ID


def numbers(values: Sequence[Any], tally: Tally) -> np.ndarray:
    """Return float64 quantities; ``None`` and nonsense is NaN (nonsense is counted)."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.fromiter((_number(v, tally) for v in values), np.float64, len(values))


def _number(value: Any, tally: Tally) -> float:
    if value is None or value == "":
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        tally.add("bad_number")
        return float("nan")


def nanoseconds(values: Sequence[Any], tally: Tally) -> tuple[np.ndarray, np.ndarray]:
    """Turn microseconds into integer nanoseconds.

    The integer and the fractional part are converted apart, so that no digit is lost that the
    number still had. Returns the values and which of them are usable.
    """
    try:
        array = np.array(values)
    except (TypeError, ValueError, OverflowError):
        array = numbers(values, tally)
    if array.dtype.kind == "i":
        usable = np.abs(array) < INT64_MAX // 1000
        return np.where(usable, array, 0) * 1000, usable
    if array.dtype.kind != "f":
        array = numbers(values, tally)
    usable = np.isfinite(array) & (np.abs(array) < INT64_MAX // 1000)
    array = np.where(usable, array, 0.0)
    whole = np.floor(array)
    fraction = np.rint((array - whole) * 1000)
    return whole.astype(np.int64) * 1000 + fraction.astype(np.int64), usable


def no_stream(streams: np.ndarray) -> np.ndarray:
    """Map CUPTI's "no particular stream" to −1."""
    return np.where(np.isin(streams, ALL_STREAMS), UNKNOWN_ID, streams)


def event_frame(values: Mapping[str, Any], rows: int) -> pd.DataFrame:
    """Build the event table, sorted by (rank, start_ns, -duration_ns, row)."""
    frame = table(EVENT_COLUMNS, values, rows)
    return in_order(frame)


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort by (rank, start_ns, -duration_ns), ties by the order read."""
    start = frame["start_ns"].to_numpy()
    order = np.lexsort((-frame["duration_ns"].to_numpy(), start, frame["rank"].to_numpy()))
    if np.array_equal(order, np.arange(len(order))):
        return frame.reset_index(drop=True)
    return frame.take(order).reset_index(drop=True)
