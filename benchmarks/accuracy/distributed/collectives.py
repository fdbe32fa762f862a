"""The study of collectives: forms and tables against public NCCL measurements, as rows.

vTrain's tables (all_reduce of 1 MiB to 1 GiB among 2 to 8 A100 or V100) show what extends from few
ranks to more; the recorded DLRM on 8 V100 checks them from outside. Errors are signed shares of
what was measured.
"""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.transforms.cluster.cost_tables import CollectiveTable, make_table
from foretrace.transforms.cluster.nvlink_rings import directed_rings
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.collectives.estimate import edge_share
from foretrace.transforms.collectives.interpolation import LARGE_BYTES, Case, fit, look_up
from foretrace.transforms.collectives.nccl_tests_log import read_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from foretrace.transforms.collectives.estimate import Estimate
    from foretrace.transforms.collectives.interpolation import Fit

KIND = "all_reduce"
RANKS = range(2, 9)
A100_FITTED, V100_FITTED = (2, 4), (2, 3)
"""Ranks that the forms are fitted on; the others are predicted."""
V100_NULL_FITTED = (2, 3, 4)
MIB = 1 << 20
FITTED_FROM = 8 * MIB
"""Smaller sizes follow other protocols; the errors count sizes above 64 MiB only."""
TABLE_BELOW = 32 * MIB
MESSAGES = {"nccl:all_reduce": "AllReduce", "nccl:all_to_all": "SendRecv"}
"""Annotation of a collective, with its size, and what its kernel's name contains."""
ITEM_BYTES = {"float": 4, "int": 4, "long int": 8}


@dataclass(frozen=True)
class CollectiveRow:
    """All sizes of one number of ranks: mean signed error, mean and largest error.

    ``null_error`` is the mean signed error of the same form with one bandwidth for all ranks.
    """

    device: str
    ranks: int
    what: str
    is_fitted: bool
    error: float
    mean_error: float
    worst_error: float
    null_error: float | None = None


@dataclass(frozen=True)
class CheckRow:
    """One measurement from elsewhere beside what a table predicts; times in ns."""

    kind: str
    size: int
    measured_ns: float
    predicted_ns: float
    spread: float
    source: str

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted_ns / self.measured_ns - 1


def measured(folder: Path, device: str, topology: str) -> CollectiveTable:
    """Return vTrain's table of "a100" or "v100", read from its *folder*."""
    files = [folder / f"{device}_allreduce_{n}gpu_1M-1024M.csv.gz" for n in RANKS]
    return make_table(e for path in files for e in read_log(path, topology=topology).entries)


def a100_rows(folder: Path) -> list[CollectiveRow]:
    """Return how the form with a copy term, fitted on 2 and 4 A100, does above 64 MiB."""
    rows = measured(folder, "a100", "switch").entries
    link = dict.fromkeys(RANKS, 1.0)
    null = _fitted(rows, A100_FITTED, link, copies=False)
    return _rows("A100", rows, (_a100_fit(rows), link), (null, link), A100_FITTED)


def v100_rows(folder: Path) -> list[CollectiveRow]:
    """Return how counted rings, fitted on 2 and 3 V100 of a DGX-1V, do above 64 MiB."""
    rows = measured(folder, "v100", "mesh").entries
    one = dict.fromkeys(RANKS, 1.0)
    null = _fitted(rows, V100_NULL_FITTED, one, copies=False)
    return _rows("V100", rows, (_v100_fit(rows), v100_rings()), (null, one), V100_FITTED)


def fits(folder: Path) -> tuple[Fit, Fit]:
    """Return the forms of A100 and V100, per GB/s of a ring and of a link: the presets' figures."""
    a100, v100 = measured(folder, "a100", "switch"), measured(folder, "v100", "mesh")
    return _a100_fit(a100.entries), _v100_fit(v100.entries)


def _a100_fit(rows: pd.DataFrame) -> Fit:
    return _fitted(rows, A100_FITTED, dict.fromkeys(RANKS, 1.0), copies=True)


def _v100_fit(rows: pd.DataFrame) -> Fit:
    return _fitted(rows, V100_FITTED, v100_rings(), copies=False)


def v100_rings() -> dict[int, float]:
    """Return the bandwidth of the first n GPUs of a DGX-1V, in NVLinks.

    Where no ring exists, a chain carries the whole size over each link: its ring bandwidth is the
    share that a ring would have carried.
    """
    cluster = load_cluster("dgx-1v")
    return {
        n: directed_rings(cluster.machine, cluster.devices[:n]) or edge_share(KIND, n)
        for n in RANKS
    }


def table_rows(folder: Path) -> list[CollectiveRow]:
    """Return how tables do below 32 MiB: every second size kept, the others predicted.

    Beside it the form of the cluster without a table.
    """
    judged = []
    for device, topology, name in (("a100", "switch", "dgx-a100"), ("v100", "mesh", "dgx-1v")):
        whole = measured(folder, device, topology)
        kept = whole.entries["bytes"] // MIB % 2 == 1
        half = CollectiveTable(whole.entries[kept].reset_index(drop=True))
        rest = whole.entries[~kept & (whole.entries["bytes"] < TABLE_BELOW)]
        cluster = load_cluster(name)
        for n, rows in rest.groupby("ranks"):
            by_form = [collective_cost(cluster, range(n), KIND, s).ns for s in rows["bytes"]]
            by_table = [_from_table(half, rows.iloc[0], s) for s in rows["bytes"]]
            ns = rows["ns"].to_numpy()
            null = float(np.mean(np.array(by_form) / ns - 1))
            what = "table, 2 to 30 MiB"
            judged.append(_row(device.upper(), n, what, by_table, ns, null=null))
    return judged


def dlrm_rows(nccl: Path, dlrm: Path) -> list[CheckRow]:
    """Return the collectives of a DLRM recorded on 8 V100, beside what vTrain's table says.

    The rank that arrives last shows the transfer alone: the shortest kernel of the 8 ranks.
    all_to_all is beside the form, since no table has it.
    """
    table, cluster = measured(nccl, "v100", "mesh"), load_cluster("dgx-1v")
    ranks = [_events(dlrm / f"kineto_rank{rank}.json.gz") for rank in range(8)]
    judged = []
    for annotation, kernel in MESSAGES.items():
        sizes = np.max([_sizes(events, annotation) for events in ranks], axis=0)
        shortest = np.min([_kernels_ns(events, kernel) for events in ranks], axis=0)
        kind = annotation.removeprefix("nccl:")
        for size, ns in zip(sizes, shortest, strict=True):
            cost = collective_cost(cluster, range(8), kind, float(size), table=table)
            judged.append(CheckRow(kind, int(size), float(ns), cost.ns, cost.spread, cost.source))
    return judged


def _events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        complete = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    return sorted(complete, key=lambda event: event["ts"])


def _sizes(events: Sequence[dict[str, Any]], annotation: str) -> list[int]:
    """Return the bytes of each call: the annotation has elements and their type."""
    calls = [event["args"] for event in events if event["name"] == annotation]
    return [math.prod(args["Input Dims"][0]) * ITEM_BYTES[args["Input type"][0]] for args in calls]


def _kernels_ns(events: Sequence[dict[str, Any]], part: str) -> list[int]:
    return [1000 * e["dur"] for e in events if e.get("cat") == "kernel" and part in e["name"]]


def _from_table(half: CollectiveTable, row: pd.Series, size: float) -> float:
    case = Case(row["device"], row["topology"], KIND, int(row["ranks"]), float(size))
    estimate = look_up(half, case, _no_form, lambda _: None)
    assert estimate is not None
    return estimate.ns


def _no_form(ranks: int, size: float) -> Estimate:
    raise AssertionError(f"{size} bytes among {ranks} ranks lie outside the table")


def _fitted(
    rows: pd.DataFrame, ranks: Sequence[int], rates: Mapping[int, float], *, copies: bool
) -> Fit:
    used = rows["ranks"].isin(ranks) & (rows["bytes"] > FITTED_FROM)
    return fit(rows[used], rates, kind=KIND, copies=copies)


def _rows(
    device: str,
    rows: pd.DataFrame,
    form: tuple[Fit, Mapping[int, float]],
    null: tuple[Fit, Mapping[int, float]],
    fitted: Sequence[int],
) -> list[CollectiveRow]:
    judged = []
    for n, of_ranks in rows[rows["bytes"] > LARGE_BYTES].groupby("ranks"):
        sizes, ns = of_ranks["bytes"].to_numpy(np.float64), of_ranks["ns"].to_numpy()
        by_form, by_null = ([f.ns(n, s, rates[n]) for s in sizes] for f, rates in (form, null))
        off = float(np.mean(np.array(by_null) / ns - 1))
        judged.append(
            _row(device, n, "form, above 64 MiB", by_form, ns, null=off, is_fitted=n in fitted)
        )
    return judged


def _row(
    device: str,
    ranks: int,
    what: str,
    predicted: Sequence[float],
    ns: np.ndarray,
    *,
    null: float,
    is_fitted: bool = False,
) -> CollectiveRow:
    errors = np.array(predicted) / ns - 1
    return CollectiveRow(
        device,
        int(ranks),
        what,
        is_fitted,
        error=float(errors.mean()),
        mean_error=float(np.abs(errors).mean()),
        worst_error=float(np.abs(errors).max()),
        null_error=null,
    )
