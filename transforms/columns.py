"""Edit the columns of a table without touching the table: masks, labels, appended rows.

In: frames of `foretrace.graph.model`. Out: arrays and new frames that share what did not change.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from foretrace.errors import TransformError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


def by_category(column: pd.Series, holds: Callable[[str], bool]) -> Mask:
    """Return where *column*'s value satisfies *holds*, asked once per distinct value."""
    flags = [bool(holds(str(value))) for value in column.cat.categories]
    return np.array([*flags, False])[column.cat.codes.to_numpy()]


def is_in(column: pd.Series, *values: str) -> Mask:
    """Return where *column* holds one of *values*.

    Examples
    --------
    >>> is_in(pd.Series(["a", "b", None], dtype="category"), "a", "c").tolist()
    [True, False, False]
    """
    return by_category(column, lambda value: value in values)


def matches(column: pd.Series, pattern: str) -> Mask:
    """Return where the regular expression *pattern* is found in *column*.

    Raises
    ------
    TransformError
        If *pattern* is no regular expression.
    """
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise TransformError(
            f"pattern={pattern!r} is no regular expression: {error}; escape special characters"
        ) from None
    return by_category(column, lambda value: found.search(value) is not None)


def labelled(column: pd.Series, where: Mask, value: str) -> pd.Categorical:
    """Return *column* with *value* wherever *where* holds; a new category is added at the end."""
    categories, code = _with_category(column.cat.categories, value)
    codes = column.cat.codes.to_numpy().astype(np.int32)
    codes[where] = code
    return pd.Categorical.from_codes(codes, categories=categories)


def append(frame: pd.DataFrame, like: Rows, values: Mapping[str, Any]) -> pd.DataFrame:
    """Return *frame* with one more row per entry of *like*.

    A new row copies the row it is *like* in every column that *values* does not give; a value
    is a scalar or one entry per new row (a text stands for all of them).
    """
    columns = {name: _extended(frame[name], like, values.get(name)) for name in frame.columns}
    return pd.DataFrame(columns, copy=False)


def _extended(column: pd.Series, like: Rows, value: Any) -> Any:
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy().astype(np.int32)
        if value is None:
            return _from_codes(np.append(codes, codes[like]), column.cat.categories)
        if isinstance(value, str):
            categories, code = _with_category(column.cat.categories, value)
            return _from_codes(np.append(codes, np.full(len(like), code, np.int32)), categories)
        categories = column.cat.categories.union(value.categories, sort=False)
        return _from_codes(np.append(codes, categories.get_indexer(value)), categories)
    old = column.to_numpy()
    new = old[like] if value is None else np.broadcast_to(np.asarray(value), len(like))
    return np.append(old, new.astype(old.dtype))


def _from_codes(codes: npt.NDArray[np.int32], categories: pd.Index) -> pd.Categorical:
    return pd.Categorical.from_codes(codes, categories=categories)


def _with_category(categories: pd.Index, value: str) -> tuple[pd.Index, int]:
    if value in categories:
        return categories, int(categories.get_loc(value))
    return pd.Index([*categories, value], dtype=categories.dtype), len(categories)
