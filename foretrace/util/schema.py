"""Declared tables: what a column is called, how it is stored, its unit and its meaning.

Readers, checks and the schema page of the docs use these declarations; nothing else says it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from foretrace.errors import ForetraceError

UNKNOWN_ID = -1
"""Ids (correlation, stream, step, row numbers) use −1 for "none or unknown"."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    ``dtype`` is ``"category"`` (strings; missing is unknown), an integer type (ids: −1 is
    unknown), or ``"float64"`` (quantities: NaN is unknown, never 0).
    """

    name: str
    dtype: str
    unit: str
    meaning: str


def default(column: Column, rows: int) -> Any:
    """Return *rows* unknown values of *column*."""
    if column.dtype == "category":
        return pd.Categorical.from_codes(
            np.full(rows, -1, np.int8), categories=pd.Index([], dtype=object)
        )
    if column.dtype == "float64":
        return np.full(rows, np.nan)
    return np.full(rows, UNKNOWN_ID, np.dtype(column.dtype))


def table(columns: Sequence[Column], values: Mapping[str, Any], rows: int) -> pd.DataFrame:
    """Build a frame with exactly *columns*, in order; what *values* lacks is unknown."""
    data = {c.name: values.get(c.name, None) for c in columns}
    ready = {
        c.name: default(c, rows) if data[c.name] is None else _cast(c, data[c.name])
        for c in columns
    }
    return pd.DataFrame(ready, copy=False)


def _cast(column: Column, values: Any) -> Any:
    if column.dtype == "category":
        return (
            values
            if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype)
            else pd.Categorical(values)
        )
    return np.asarray(values).astype(column.dtype, copy=False)


def stack(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all *frames*, which have the same columns, numbered anew."""
    columns: dict[str, Any] = {}
    for name in frames[0]:
        parts = [frame[name].array for frame in frames]
        if isinstance(parts[0].dtype, pd.CategoricalDtype):
            columns[name] = _join_categories(parts)
        else:
            columns[name] = np.concatenate([part.to_numpy() for part in parts])
    return pd.DataFrame(columns, copy=False)


def _join_categories(parts: Sequence[pd.Categorical]) -> pd.Categorical:
    """Join columns of strings; each category keeps the place of its first appearance."""
    place: dict[str, int] = {}
    for part in parts:
        for value in part.categories:
            place.setdefault(value, len(place))
    codes = [
        np.array([*(place[value] for value in part.categories), -1], np.int64)[part.codes]
        for part in parts
    ]
    return pd.Categorical.from_codes(np.concatenate(codes), list(place))


def require(
    frame: pd.DataFrame, columns: Sequence[Column], error: type[ForetraceError], what: str
) -> None:
    """Raise *error* unless *frame* has *columns* with their dtypes."""
    dtypes = dict(zip(frame.columns, frame.dtypes.array, strict=True))
    for column in columns:
        if column.name not in dtypes:
            raise error(f"{what} lacks the column {column.name!r}")
        if (dtype := dtypes[column.name]) != column.dtype:
            raise error(f"{what}: column {column.name!r} is {dtype}, expected {column.dtype}")


def matches(column: pd.Series, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Tell which rows of a category *column* match *pattern*, tested once per category.

    >>> import re
    >>> import pandas as pd
    >>> matches(pd.Series(["ab", "b"], dtype="category"), re.compile("^a")).tolist()
    [True, False]
    """
    values = column.array
    hits = [pattern.search(str(each)) is not None for each in values.categories.tolist()]
    flags: NDArray[np.bool_] = np.array([*hits, False])[values.codes]
    return flags
