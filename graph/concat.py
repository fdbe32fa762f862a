"""Tables of the same columns put one below the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Sequence


def stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all *frames*, which have the same columns, numbered anew."""
    columns: dict[str, Any] = {}
    for name in frames[0]:
        parts = [frame[name].array for frame in frames]
        if isinstance(parts[0].dtype, pd.CategoricalDtype):
            columns[name] = _categories_joined(parts)
        else:
            columns[name] = np.concatenate([part.to_numpy() for part in parts])
    return pd.DataFrame(columns, copy=False)


def _categories_joined(parts: Sequence[pd.Categorical]) -> pd.Categorical:
    """Join columns of strings; each category keeps the place of its first appearance."""
    known: dict[str, int] = {}
    for part in parts:
        for value in part.categories:
            known.setdefault(value, len(known))
    codes = [
        np.array([*(known[value] for value in part.categories), -1], np.int64)[part.codes]
        for part in parts
    ]
    return pd.Categorical.from_codes(np.concatenate(codes), list(known))
