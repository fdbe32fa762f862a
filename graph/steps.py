"""Where the iterations of a recording begin.

In: the trace's annotations. Out: step starts on the host, and which annotation said so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_DIGITS = re.compile(r"\d+")
_MARKERS = (
    ("ProfilerStep", re.compile(r"^ProfilerStep#")),
    ("step range", re.compile(r"^\W*(train[ _]?)?(step|iteration|iter|batch)\W*#?\W*$", re.IGNORECASE)),
    ("forward range", re.compile(r"^\W*(forward|fwd)\W*$", re.IGNORECASE)),
    ("Optimizer.step", re.compile(r"^Optimizer\.step")),
    ("Optimizer.zero_grad", re.compile(r"^Optimizer\.zero_grad")),
    ("repeated range", re.compile(r"#")),
)
COVERAGE = 0.5  # of the recording, for a repeated range that does not call itself a step


@dataclass(frozen=True)
class Steps:
    """Step ``i`` spans ``starts_ns[i]`` to ``starts_ns[i + 1]`` on thread ``thread``.

    ``rows`` are the markers' rows in the rank's events (index labels of *annotations*).
    With one marker only, the second boundary is that marker's end and ``single`` is true.
    """

    starts_ns: NDArray[np.int64]
    rows: NDArray[np.int64]
    thread: int
    source: str
    single: bool = False

    @property
    def count(self) -> int:
        """Number of whole steps."""
        return len(self.starts_ns) - 1


def find_steps(annotations: pd.DataFrame, pattern: str | None = None) -> Steps | None:
    """Find step boundaries among host annotations of one rank; ``None`` when there are none.

    Parameters
    ----------
    annotations
        Host rows with ``name``, ``thread``, ``start_ns``, ``duration_ns``.
    pattern
        Regular expression of the annotation that begins a step, instead of guessing.

    Raises
    ------
    GraphError
        When *pattern* is not a regular expression or matches fewer than two ranges.
    """
    if pattern is not None:
        return _by_pattern(annotations, pattern)
    names = annotations["name"].cat.categories
    shapes = {name: _DIGITS.sub("#", str(name)) for name in names}
    for source, marker in _MARKERS:
        wanted = [name for name, shape in shapes.items() if marker.search(shape)]
        found = _candidates(annotations[annotations["name"].isin(wanted)], shapes)
        if found is not None and (source != "repeated range" or _covers(found, annotations)):
            return _steps(found, source)
    return None


def _covers(rows: pd.DataFrame, annotations: pd.DataFrame) -> bool:
    """Whether *rows*, without what they share, cover most of the time that is annotated."""
    ends = (rows["start_ns"] + rows["duration_ns"]).to_numpy(np.int64)
    starts = np.maximum(rows["start_ns"].to_numpy(np.int64), np.append([0], np.maximum.accumulate(ends)[:-1]))
    covered = np.clip(ends - starts, 0, None).sum()
    last = (annotations["start_ns"] + annotations["duration_ns"]).max()
    return bool(covered > COVERAGE * (last - annotations["start_ns"].min()))


def _by_pattern(annotations: pd.DataFrame, pattern: str) -> Steps:
    try:
        where = annotations["name"].astype(str).str.contains(pattern, regex=True)
    except re.error as error:
        raise GraphError(f"step pattern {pattern!r} is no regular expression: {error}") from None
    if where.sum() < 2:  # noqa: PLR2004
        raise GraphError(
            f"step pattern {pattern!r} matches {where.sum()} ranges, at least 2 are needed"
        )
    return _steps(_one_thread(annotations[where]), f"pattern {pattern!r}")


def _candidates(rows: pd.DataFrame, shapes: dict[str, str]) -> pd.DataFrame | None:
    """Return the rows of the longest-lasting repeated shape, ``None`` without any."""
    if rows.empty:
        return None
    shape = rows["name"].astype(str).map(shapes)
    grouped = rows["duration_ns"].groupby(shape).agg(["size", "sum"])
    repeated = grouped[grouped["size"] > 1]
    pick = (repeated if len(repeated) else grouped)["sum"].idxmax()
    if not len(repeated) and not str(pick).startswith("ProfilerStep"):
        return None
    return _one_thread(rows[shape == pick])


def _one_thread(rows: pd.DataFrame) -> pd.DataFrame:
    thread = rows.groupby("thread")["duration_ns"].size().idxmax()
    return rows[rows["thread"] == thread].sort_values("start_ns", kind="stable")


def _steps(rows: pd.DataFrame, source: str) -> Steps:
    starts = rows["start_ns"].to_numpy(np.int64)
    keep = np.concatenate([[True], np.diff(starts) > 0])
    starts, labels = starts[keep], rows.index.to_numpy(np.int64)[keep]
    thread = int(rows["thread"].iloc[0])
    if len(starts) == 1:
        end = starts[0] + int(rows["duration_ns"].iloc[0])
        return Steps(np.array([starts[0], max(end, starts[0] + 1)]), labels, thread, source, single=True)
    return Steps(starts, labels, thread, source)
