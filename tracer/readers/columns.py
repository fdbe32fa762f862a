"""From lists of whatever a file says to typed columns."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.util.limits import NAME
from foretrace.util.schema import UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foretrace.tracer.data_issues import Tally

INT64_MAX = 2**63 - 1
LATEST_NS = 2**62 - 1
"""The year 2116; no sum of a start and a length leaves 64 bits."""
NO_STREAM = (2**32 - 1, 2**64 - 1)
"""How CUPTI writes "no particular stream"; the second exceeds int64 and is unknown anyway."""
NS_PER_US = 1000
SHORT = 256
"""Characters of a name that is never cut."""
LONG_NUMBER = 80
"""Characters of a number so long that Python does not write it in decimals."""


def categorical(values: Sequence[Any] | np.ndarray) -> pd.Categorical:
    """Encode values in the order of first appearance; ``None`` and NaN are unknown."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    place: dict[Any, int] = dict.fromkeys(listed, UNKNOWN_ID)
    unique = [value for value in place if value is not None and value == value]  # noqa: PLR0124
    place.update((value, i) for i, value in enumerate(unique))
    codes = np.fromiter(map(place.__getitem__, listed), np.int32, len(listed))
    return from_codes(codes, unique)


def encode_names(values: Sequence[Any]) -> pd.Categorical:
    """Encode names; what is no string is written as one, and ``None`` is called "".

    >>> encode_names(["a", None, 3]).tolist()
    ['a', '', '3']
    """
    names = categorical(values)
    if (names.codes < 0).any():
        named = ("" if value is None or value != value else value for value in values)  # noqa: PLR0124
        names = categorical(list(named))
    return recode(names, _name)


def _name(value: Any) -> str:
    try:
        return cut_name(str(value))
    except ValueError:  # an integer of thousands of digits
        return f"{value:#x}"[:LONG_NUMBER]


def cut_name(name: str) -> str:
    """Return *name*, or the beginning of a very long one and what tells it from others.

    >>> cut_name("relu"), len(cut_name("x" * 1_000_000)) <= NAME.allowed()
    ('relu', True)
    """
    if not name.isascii():  # halves of characters cannot be written anywhere
        name = name.encode("utf-8", "replace").decode("utf-8")
    if len(name) <= SHORT or len(name) <= (most := NAME.allowed()):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{name[: max(most - 18, 0)]}…{digest}"


def from_codes(codes: np.ndarray, categories: Sequence[Any]) -> pd.Categorical:
    """Return a categorical of *codes* (−1 is unknown); no two *categories* are equal."""
    dtype = pd.CategoricalDtype(pd.Index(list(categories), dtype=object))
    return pd.Categorical.from_codes(codes, dtype=dtype)


def recode(values: pd.Categorical, new_name: Callable[[Any], str | None]) -> pd.Categorical:
    """Rename the categories, merging those that become equal; ``None`` becomes unknown.

    >>> recode(categorical(["a", "A", "b"]), str.lower).categories.tolist()
    ['a', 'b']
    """
    return merge_codes(values.codes, [new_name(c) for c in values.categories])


def merge_codes(codes: np.ndarray, names: Sequence[str | None]) -> pd.Categorical:
    """Return a categorical of *codes* into *names*, of which some may be equal or unknown.

    >>> merge_codes(np.array([0, 1, 2, -1]), ["a", None, "a"]).tolist()
    ['a', nan, 'a', nan]
    """
    unique = list(dict.fromkeys(n for n in names if n is not None))
    place: dict[str | None, int] = {n: i for i, n in enumerate(unique)}
    lookup = np.array([place.get(n, -1) for n in names] + [-1], dtype=np.int32)
    return from_codes(lookup[codes], unique)


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
        if (
            type(value) is Decimal and not abs(value) <= INT64_MAX
        ):  # 1e999999999 has a billion digits
            return UNKNOWN_ID
        number = int(value)
    except (TypeError, ValueError, ArithmeticError):
        tally.add("bad_number")
        return UNKNOWN_ID
    return number if -INT64_MAX <= number <= INT64_MAX else UNKNOWN_ID


def small(values: np.ndarray, dtype: type[np.integer[Any]]) -> np.ndarray:
    """Narrow ids to *dtype*; what does not fit is unknown."""
    return np.where(np.abs(values) <= np.iinfo(dtype).max, values, UNKNOWN_ID).astype(dtype)


def quantities(values: Sequence[Any], tally: Tally) -> np.ndarray:
    """Return float64; negative, infinite, ``None`` and nonsense is NaN (nonsense is counted)."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.fromiter((_quantity(v, tally) for v in values), np.float64, len(values))
    return np.where((array >= 0) & np.isfinite(array), array, np.nan)


def _quantity(value: Any, tally: Tally) -> float:
    if value is None or value == "":
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        tally.add("bad_number")
        return np.nan


def nanoseconds(values: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Turn microseconds into integer nanoseconds; the second array says which are usable.

    Whole and fractional microseconds are converted apart: times since 1970 have 16 digits before
    the point, and multiplying such a float by 1000 loses up to 256 ns.

    >>> nanoseconds([4458676522690.655, 3])[0].tolist()
    [4458676522690655, 3000]
    """
    try:
        array = np.array(values)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0, object)
    if array.dtype.kind == "i" and array.shape == (len(values),):
        usable = np.abs(array) < INT64_MAX // NS_PER_US
        return np.where(usable, array, 0) * NS_PER_US, usable
    if array.dtype.kind != "f" or any(type(v) is int and abs(v) >= 2**53 for v in values):
        exact = [_nanoseconds(v) for v in values]
        usable = np.array([v is not None for v in exact], dtype=bool)
        return np.array([v or 0 for v in exact], dtype=np.int64), usable
    usable = np.isfinite(array) & (np.abs(array) < INT64_MAX // NS_PER_US)
    array = np.where(usable, array, 0.0)
    whole = np.floor(array)
    fraction = np.rint((array - whole) * NS_PER_US)
    return whole.astype(np.int64) * NS_PER_US + fraction.astype(np.int64), usable


def _nanoseconds(value: Any) -> int | None:
    try:
        moment = Decimal(value)
        if not abs(moment) <= INT64_MAX // NS_PER_US:
            return None
        return int((moment * NS_PER_US).to_integral_value())
    except (TypeError, ValueError, ArithmeticError):
        return None


def no_stream(streams: np.ndarray) -> np.ndarray:
    """Map CUPTI's "no particular stream" to −1."""
    return np.where(streams == NO_STREAM[0], UNKNOWN_ID, streams)
