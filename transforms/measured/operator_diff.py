"""What becomes of each operator of a job: a calibrated list after a change beside that before.

In: two lists of a calibration. Out: arrays by position in the list before, and what is new.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pandas as pd

    from foretrace.transforms.edit.columns import Mask, Rows

    Floats = npt.NDArray[np.float64]


IMAGES = (4, 5)
"""Dimensions of tensors that torch lays out with channels first or last."""


@dataclass(frozen=True)
class NewForm:
    """What becomes of each entry of the list before, and what is new. Times in ns.

    ``is_other`` marks entries whose new form has tensors of other types or laid out in another
    order, so that it runs another kernel; ``stays`` those that stay what they are. ``new`` are the
    rows of the list after that replace nothing, ``anchor`` the entry before that each follows.
    """

    before: Times
    after: Times
    is_other: Mask
    stays: Mask
    is_timed: Mask
    is_gone: Mask
    new: pd.DataFrame
    anchor: Rows


@dataclass(frozen=True)
class Times:
    """Time of each entry on the host and on the device (NaN: none)."""

    host: Floats
    device: Floats


def new_form(before: pd.DataFrame, after: pd.DataFrame) -> NewForm:
    """Put the list *after* beside the list *before*."""
    count = len(before)
    of = after["of"].to_numpy().astype(np.int64)
    replaces = of >= 0
    old = Times(*(before[c].to_numpy(np.float64) for c in ("ns", "device_ns")))
    new = Times(
        *(sum_by_place(of[replaces], after[c][replaces], count) for c in ("ns", "device_ns"))
    )
    is_gone = np.bincount(of[replaces], minlength=count) == 0
    entries = list(zip(before["operator"], before["arguments"].astype(str), strict=True))
    listed = zip(of, after["operator"], after["arguments"].astype(str), strict=True)
    is_other, stays = np.zeros(count, bool), np.zeros(count, bool)
    for at, operator, arguments in listed:
        if at >= 0:
            stays[at] |= entries[at] == (operator, arguments)
            is_other[at] |= _tensors(arguments) != _tensors(entries[at][1])
    is_new = ~replaces & np.isfinite(after["ns"].to_numpy())
    last = np.maximum.accumulate(np.where(replaces, of, -1)) if len(of) else of
    return NewForm(
        before=old,
        after=new,
        is_other=is_other,
        stays=stays,
        is_timed=is_gone | stays | (np.isfinite(new.host) & (old.host > 0)),
        is_gone=is_gone,
        new=after[is_new],
        anchor=np.maximum(last[is_new], 0),
    )


def sum_by_place(at: Rows, values: Any, count: int) -> Floats:
    """Return the sums of *values* by their place *at*, for *count* places."""
    return np.bincount(at, np.asarray(values, np.float64), count).astype(np.float64)


@lru_cache(maxsize=10_000)
def _tensors(arguments: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return type and order of the dimensions in memory of the tensors among *arguments*.

    Only images have an order, those of torch's memory formats; a dimension of size 1 has no place.

    >>> _tensors('[{"shape":[2,3,4,1],"stride":[12,1,3,3],"dtype":"float32"},0.5]')
    (('float32', (0, 2, 1)),)
    """
    try:
        tensors = _in(json.loads(arguments))
    except ValueError:
        return ()
    return tuple((str(tensor["dtype"]), _order(tensor)) for tensor in tensors)


def _in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "dtype" in value:
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _in(part)


def _order(tensor: dict[str, Any]) -> tuple[int, ...]:
    shape, strides = tensor.get("shape", ()), tensor.get("stride", ())
    if len(shape) not in IMAGES:
        return ()
    dimensions = enumerate(zip(shape, strides, strict=False))
    wide = [(-stride, at) for at, (size, stride) in dimensions if size > 1]
    return tuple(at for _, at in sorted(wide))


def ratio(new: Floats, old: Floats) -> Floats:
    """Return *new* over *old*; NaN where that is no number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient: Floats = new / old
    return np.where(np.isfinite(quotient), quotient, np.nan)
