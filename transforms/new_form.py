"""What becomes of each operator of a job: a calibrated list after a change beside that before.

In: two lists of a calibration. Out: arrays by position in the list before, and what is new.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from foretrace.transforms.columns import Mask, Rows

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NewForm:
    """What becomes of each entry of the list before, and what is new. Times in ns.

    ``retyped`` marks entries whose new form has other types, ``stays`` those that stay what they
    are. ``new`` are the rows of the list after that replace nothing, ``anchor`` the entry before
    that each of them follows.
    """

    before: Times
    after: Times
    retyped: Mask
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
    new = Times(*(summed(of[replaces], after[c][replaces], count) for c in ("ns", "device_ns")))
    is_gone = np.bincount(of[replaces], minlength=count) == 0
    entries = list(zip(before["operator"], before["arguments"].astype(str), strict=True))
    listed = zip(of, after["operator"], after["arguments"].astype(str), strict=True)
    retyped, stays = np.zeros(count, bool), np.zeros(count, bool)
    for at, operator, arguments in listed:
        if at >= 0:
            stays[at] |= entries[at] == (operator, arguments)
            retyped[at] |= _types(arguments) != _types(entries[at][1])
    is_new = ~replaces & np.isfinite(after["ns"].to_numpy())
    last = np.maximum.accumulate(np.where(replaces, of, -1)) if len(of) else of
    return NewForm(
        before=old,
        after=new,
        retyped=retyped,
        stays=stays,
        is_timed=is_gone | stays | (np.isfinite(new.host) & (old.host > 0)),
        is_gone=is_gone,
        new=after[is_new],
        anchor=np.maximum(last[is_new], 0),
    )


def summed(at: Rows, values: Any, count: int) -> Floats:
    """Return the sums of *values* by their place *at*, for *count* places."""
    return np.bincount(at, np.asarray(values, np.float64), count).astype(np.float64)


@lru_cache(maxsize=10_000)
def _types(arguments: str) -> tuple[str, ...]:
    """Return the types of the tensors among *arguments*, in order.

    >>> _types('[{"shape":[2],"stride":[1],"dtype":"float32"},0.5]')
    ('float32',)
    """
    return tuple(re.findall(r'"dtype": *"([^"]+)"', arguments))


def ratio(new: Floats, old: Floats) -> Floats:
    """Return *new* over *old*; NaN where that is no number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = new / old
    return np.where(np.isfinite(found), found, np.nan)
