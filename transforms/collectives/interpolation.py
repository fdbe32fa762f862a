"""What a table of measured collectives says about a case: inside it, beside it, and when nothing.

Inside the sizes of a case: log-log interpolation. Outside them: the library's form, scaled to the
nearest entry. For other numbers of ranks: t = base + hop (n-1) + S (share(n) / rate(n) + copy),
fitted to the ranks that were measured, where ``rate`` comes from the topology.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.collectives.estimate import edge_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from foretrace.transforms.cluster.cost_tables import CollectiveTable
    from foretrace.transforms.collectives.estimate import Estimate

    LibraryForm = Callable[[int, float], Estimate]
    Rate = Callable[[int], float | None]

LARGE_BYTES = 1 << 26
"""From here on nothing but the line is left: no protocol switch, no sawtooth (A100 and V100)."""
NEIGHBOURS = 8
"""Smaller cases are fitted to entries of an eighth to eight times their size."""
LEAST_ROWS = 6
EXTENDED = 0.1
"""A table of 8 V100 from 1 MiB on, extended down to the messages of a DLRM recorded on another such
machine, was 6 to 11 % off."""


@dataclass(frozen=True)
class Case:
    """What is asked for; `size` in bytes."""

    device: str
    topology: str
    kind: str
    ranks: int
    size: float


@dataclass(frozen=True)
class TableCost:
    """What a table says: ns, spread (share), and in words how it was found."""

    ns: float
    spread: float
    note: str


@dataclass(frozen=True)
class Fit:
    """The fitted form of one kind on one topology.

    ``slowness`` is what the nominal rate must be divided by, ``worst`` the largest relative error
    on the rows it was fitted to.
    """

    kind: str
    base_ns: float
    hop_ns: float
    slowness: float
    copy_ns_per_byte: float
    worst: float = 0.0

    def ns(self, ranks: int, size: float, rate: float) -> float:
        """Return the time among *ranks* whose ring passes *rate* nominal bytes per ns."""
        crossing = edge_share(self.kind, ranks) / rate * self.slowness
        return self.base_ns + self.hop_ns * (ranks - 1) + size * (crossing + self.copy_ns_per_byte)


def fit(rows: pd.DataFrame, rates: Mapping[int, float], *, kind: str, copies: bool) -> Fit:
    """Fit the form to *rows* (columns ranks, bytes, ns) by least squares of relative errors.

    Parameters
    ----------
    rates
        Number of ranks to the nominal bytes per ns of its ring.
    copies
        Whether there is work per byte that does not shrink with the ranks.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(n, s, 5e3 + 1e3 * (n - 1) + s * 2 * (n - 1) / n / 10)
    ...         for n in (2, 4) for s in (10**6, 10**7)]
    >>> fitted = fit(pd.DataFrame(rows, columns=["ranks", "bytes", "ns"]), {2: 20, 4: 20},
    ...              kind="all_reduce", copies=False)
    >>> round(fitted.base_ns), round(fitted.hop_ns), round(fitted.slowness, 3)
    (5000, 1000, 2.0)
    """
    ranks = rows["ranks"].to_numpy(np.float64)
    size = rows["bytes"].to_numpy(np.float64)
    ns = rows["ns"].to_numpy(np.float64)
    crossing = np.array([edge_share(kind, n) / rates[n] for n in rows["ranks"].tolist()])
    columns = np.column_stack([np.ones_like(ns), ranks - 1, size * crossing, size * copies])
    terms = _not_negative(columns / ns[:, None], needed=2)
    worst = float(np.abs(columns @ terms / ns - 1).max())
    base_ns, hop_ns, slowness, copy = map(float, terms)
    return Fit(kind, base_ns, hop_ns, slowness, copy, worst)


def _not_negative(columns: np.ndarray, *, needed: int) -> np.ndarray:
    """Solve columns @ x = 1, leaving out the terms that would come out below 0."""
    kept = [at for at in range(columns.shape[1]) if columns[:, at].any()]
    while True:
        solved = np.linalg.lstsq(columns[:, kept], np.ones(len(columns)), rcond=None)[0]
        worst = min((x, at) for x, at in zip(solved, kept, strict=True) if at != needed or x > 0)
        if worst[0] >= 0:
            terms = np.zeros(columns.shape[1])
            terms[kept] = solved
            return terms
        kept.remove(worst[1])


def look_up(
    measured: CollectiveTable, case: Case, form: LibraryForm, rate: Rate
) -> TableCost | None:
    """Return what the table says about *case*; None where it has nothing on device and topology.

    *form* is the library's estimate for so many ranks and bytes, *rate* the nominal bandwidth of
    their ring (None: such a group is impossible, or has no ring).

    Raises
    ------
    TransformError
        The table has other numbers of ranks only, and this group's devices have no ring.
    """
    rows = measured.select(case.device, case.topology, case.kind)
    same = rows[rows["ranks"] == case.ranks]
    if len(same):
        return _along_sizes(same, case, form)
    rates = {int(n): rate(int(n)) for n in rows["ranks"].unique()}
    ring_rates = {n: each for n, each in rates.items() if each is not None}
    if not ring_rates:
        return None
    own = rate(case.ranks)
    if own is None:
        raise TransformError(
            f"{case.kind} among {case.ranks}: these devices have no ring of direct links, so the "
            f"table's {_list_ranks(ring_rates)} ranks tell nothing about them; measure "
            f"{case.ranks} ranks, or leave the table out"
        )
    usable = rows[rows["ranks"].isin(ring_rates)]
    if len(ring_rates) == 1:
        return _from_one(usable, case, form)
    near = _near(usable, case.size)
    fitted = fit(near, ring_rates, kind=case.kind, copies=case.topology == "switch")
    return TableCost(
        fitted.ns(case.ranks, case.size, own),
        fitted.worst + float(near["spread"].mean()),
        f"table: extended from {_list_ranks(ring_rates)} to {case.ranks} ranks",
    )


def _along_sizes(rows: pd.DataFrame, case: Case, form: LibraryForm) -> TableCost:
    """Interpolate between sizes; outside them, scale the form to the nearest entry."""
    size, ns, spread = (rows[name].to_numpy(np.float64) for name in ("bytes", "ns", "spread"))
    if size[0] <= case.size <= size[-1]:
        at = np.log(case.size), np.log(size)
        return TableCost(
            float(np.exp(np.interp(*at, np.log(ns)))),
            float(np.interp(*at, spread)),
            f"table of {case.ranks} ranks",
        )
    nearest = 0 if case.size < size[0] else len(size) - 1
    wider = _drift(size, ns, nearest, case, form)
    ratio = form(case.ranks, case.size).ns / form(case.ranks, size[nearest]).ns
    return TableCost(
        float(ns[nearest] * ratio),
        float(spread[nearest]) + wider + EXTENDED,
        f"table of {case.ranks} ranks, extended from {size[nearest]:,.0f} bytes by the form",
    )


def _drift(size: np.ndarray, ns: np.ndarray, nearest: int, case: Case, form: LibraryForm) -> float:
    """Return how far table and form part on the way outside, from how they part inside."""
    octaves = abs(np.log2(max(case.size, 1.0) / size[nearest]))
    inside = [at for at in range(len(size)) if abs(np.log2(size[at] / size[nearest])) >= 1]
    if not inside:
        return form(case.ranks, case.size).spread
    other = min(inside, key=lambda at: abs(at - nearest))
    ratio = [ns[at] / form(case.ranks, size[at]).ns for at in (nearest, other)]
    per_octave = abs(np.log(ratio[0] / ratio[1]) / np.log2(size[nearest] / size[other]))
    return float(per_octave * octaves)


def _from_one(rows: pd.DataFrame, case: Case, form: LibraryForm) -> TableCost:
    """Scale what one other number of ranks takes by what the form says about the difference."""
    ranks = int(rows["ranks"].iloc[0])
    there = _along_sizes(rows, Case(case.device, case.topology, case.kind, ranks, case.size), form)
    here = form(case.ranks, case.size)
    return TableCost(
        there.ns * here.ns / form(ranks, case.size).ns,
        there.spread + here.spread,
        f"{there.note}, taken to {case.ranks} by the form",
    )


def _near(rows: pd.DataFrame, size: float) -> pd.DataFrame:
    """Return the rows whose sizes tell about *size*; all of them where those are too few."""
    sizes = rows["bytes"]
    close = sizes.between(size / NEIGHBOURS, size * NEIGHBOURS)
    near = rows[sizes >= LARGE_BYTES] if size >= LARGE_BYTES else rows[close]
    return near if len(near) >= LEAST_ROWS and len(set(near["ranks"])) > 1 else rows


def _list_ranks(ranks: Mapping[int, float]) -> str:
    return ", ".join(map(str, sorted(ranks)))
