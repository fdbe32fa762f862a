"""Edit the columns of a table without touching the table: masks, labels, appended rows.

In: frames of `foretrace.graph.model`. Out: arrays and new frames that share what did not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from foretrace.errors import TransformError
from foretrace.util.patterns import compile_given, searchable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
NO_KERNEL = {"flops": np.nan, "blocks": -1, "block_threads": -1, "fill": np.nan}
"""What a task that is no recorded kernel has in the columns that describe one."""


FEW = 8
"""So many comparisons of all codes are quicker than looking every code up."""


def by_category(column: pd.Series, holds: Callable[[str], bool]) -> Mask:
    """Return where *column*'s value satisfies *holds*, asked once per distinct value."""
    values = column.array
    flags = [bool(holds(str(value))) for value in values.categories.tolist()]
    return _where(values.codes, np.array([*flags, False]))


def of_category(column: pd.Series, rule: Callable[[str], Any], missing: Any) -> npt.NDArray[Any]:
    """Return what *rule*, a function of a module, says of each value of a category *column*.

    It is asked once per distinct value, and what it said is kept: many what-ifs ask the same of the
    same names, of which a recording may have as many as it has kernels.

    Examples
    --------
    >>> of_category(pd.Series(["ab", None, "c"], dtype="category"), len, 0).tolist()
    [2, 0, 1]
    """
    values = column.array
    return _answers(_Categories(values.categories), rule, missing)[values.codes]


@dataclass(frozen=True, eq=False)
class _Categories:
    """Distinct values of a column, known by identity: an index never changes, and has no hash."""

    index: pd.Index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Categories) and self.index is other.index

    def __hash__(self) -> int:
        return id(self.index)


@lru_cache(maxsize=64)
def _answers(categories: _Categories, rule: Callable[[str], Any], missing: Any) -> npt.NDArray[Any]:
    answers = np.array([*(rule(str(value)) for value in categories.index.tolist()), missing])
    answers.flags.writeable = False
    return answers


def _where(codes: npt.NDArray[Any], flags: Mask) -> Mask:
    """Return which of *codes* are flagged; the last flag is for code -1."""
    wanted = np.flatnonzero(flags)
    if len(wanted) > FEW:
        return flags[codes]
    where = np.zeros(len(codes), bool)
    for code in wanted:
        where |= codes == code
    return where


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
    values = column.array
    return _where(values.codes, _find_matches(_Categories(values.categories), pattern))


@lru_cache(maxsize=64)
def _find_matches(categories: _Categories, pattern: str) -> Mask:
    """Tell in which categories *pattern* is found; many what-ifs ask the same."""
    search = compile_given(pattern, TransformError).search
    has_match = [search(searchable(str(value))) is not None for value in categories.index.tolist()]
    return np.array([*has_match, False])


def set_label(column: pd.Series, where: Mask, value: str) -> pd.Categorical:
    """Return *column* with *value* wherever *where* holds; a new category is added at the end."""
    dtype, code = _with_category(column.dtype, value)
    codes = _wide_enough(column.array.codes, dtype).copy()
    codes[where] = code
    return _from_codes(codes, dtype)


def pad(where: Mask, count: int) -> Mask:
    """Return *where* for *count* rows: what was appended since is not selected.

    Examples
    --------
    >>> pad(np.array([True, False]), 3).tolist()
    [True, False, False]
    """
    return np.append(where, np.zeros(count - len(where), bool))


def append(frame: pd.DataFrame, like: Rows, values: Mapping[str, Any]) -> pd.DataFrame:
    """Return *frame* with one more row per entry of *like*.

    A new row copies the row it is *like* in every column that *values* does not give; a value
    is a scalar or one entry per new row (a text stands for all of them).
    """
    columns = {name: _extend(frame[name], like, values.get(name)) for name in frame.columns}
    return pd.DataFrame(columns, copy=False)


def take_rows(frame: pd.DataFrame, keep: Mask) -> pd.DataFrame:
    """Return the rows of *frame* where *keep* holds, numbered anew."""
    return pd.DataFrame({name: _take(frame[name], keep) for name in frame.columns}, copy=False)


def _take(column: pd.Series, keep: Mask) -> Any:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _from_codes(column.array.codes[keep], column.dtype)
    return column.to_numpy()[keep]


def _extend(column: pd.Series, like: Rows, value: Any) -> Any:
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.array.codes
        if value is None:
            return _from_codes(np.concatenate((codes, codes[like])), column.dtype)
        if isinstance(value, str):
            dtype, code = _with_category(column.dtype, value)
            new = np.full(len(like), code)
        else:
            categories = column.dtype.categories.union(value.categories, sort=False)
            dtype = pd.CategoricalDtype(categories)
            new = categories.get_indexer(value)
        codes = _wide_enough(codes, dtype)
        return _from_codes(np.concatenate((codes, new.astype(codes.dtype))), dtype)
    old = column.to_numpy()
    new = old[like] if value is None else np.broadcast_to(np.asarray(value), len(like))
    return np.concatenate((old, new.astype(old.dtype)))


def _from_codes(codes: npt.NDArray[Any], dtype: pd.CategoricalDtype) -> pd.Categorical:
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)


def _wide_enough(codes: npt.NDArray[Any], dtype: pd.CategoricalDtype) -> npt.NDArray[Any]:
    """Return *codes* in a type that holds all categories of *dtype*."""
    return codes.astype(np.promote_types(codes.dtype, np.min_scalar_type(-len(dtype.categories))))


def _with_category(dtype: pd.CategoricalDtype, value: str) -> tuple[pd.CategoricalDtype, int]:
    categories = dtype.categories
    if value in categories:
        return dtype, int(categories.get_loc(value))
    dtype_of_index = categories.dtype if len(categories) else object
    wider = pd.Index([*categories, value], dtype=dtype_of_index)
    return pd.CategoricalDtype(wider), len(categories)
