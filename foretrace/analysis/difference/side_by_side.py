"""Two recordings in, tables of what a step does in each out: by kernel, operator, module, phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from foretrace.transforms.costs.kernels import Kernels
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.select import on_device
from foretrace.transforms.measured.match_tasks import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.exchange import Counterparts

    Names = npt.NDArray[np.object_]

BY = ("kernel class", "kernel", "operator", "module", "phase")
SAME = 0.02
"""Share by which a time must differ before a row is called slower or faster."""
COPIES = ("memcpy", "memset")


@dataclass(frozen=True)
class Row:
    """What a step does of one name, before and after. Times in ns of a step, counts too.

    ``device_ns`` is the time of device work as recorded, ``host_ns`` what calls and operators take
    when nothing blocks them. ``precision`` is that of most of the device time, "" where there is
    none. ``moved`` counts what is on another stream or thread, or in another phase or module.
    """

    name: str
    count: tuple[float, float]
    device_ns: tuple[float, float]
    host_ns: tuple[float, float]
    precision: tuple[str, str]
    moved: float

    @property
    def change_ns(self) -> float:
        """How much longer it takes, on the device and the host together."""
        return sum(after - before for before, after in (self.device_ns, self.host_ns))

    @property
    def what(self) -> str:
        """What became of it, in a word or two."""
        if not self.count[0] or not self.count[1]:
            return "gone" if self.count[0] else "new"
        before, after = (sum(each) for each in zip(self.device_ns, self.host_ns, strict=True))
        said = [*_compare(self.count, "more", "fewer"), *_compare((before, after), *PACE)]
        said += ["other precision"] if self.precision[0] != self.precision[1] else []
        return ", ".join([*said, *(["moved"] if self.moved else [])])


PACE = ("slower", "faster")


def _compare(values: tuple[float, float], more: str, less: str) -> list[str]:
    before, after = values
    if abs(after - before) <= SAME * before:
        return []
    return [more if after > before else less]


@dataclass(frozen=True)
class Table:
    """All rows of one kind, those that change most first."""

    by: str
    rows: tuple[Row, ...]


def add_rows(rows: Sequence[Row]) -> Row:
    """Return the sum of *rows*, named by their number."""
    before, after = (
        [
            sum(each[side] for each in column)
            for column in zip(*((r.count, r.device_ns, r.host_ns) for r in rows), strict=True)
        ]
        for side in (0, 1)
    )
    count, device, host = zip(before, after, strict=True)
    name = f"{len(rows)} other{'s' * (len(rows) > 1)}"
    return Row(name, count, device, host, ("", ""), sum(row.moved for row in rows))


def put_side_by_side(pair: Counterparts) -> tuple[Table, ...]:
    """Return a table for each of `BY` that has rows."""
    graphs = (pair.graph, pair.other)
    moved = _find_moved(pair)
    described = [_describe(graph, flags) for graph, flags in zip(graphs, moved, strict=True)]
    tables = (Table(by, tuple(_make_rows(described, graphs, by))) for by in BY)
    return tuple(table for table in tables if table.rows)


def _describe(graph: Graph, moved: npt.NDArray[np.bool_]) -> pd.DataFrame:
    """Return what the tables need of each task: its names, its time, its precision."""
    tasks, kernels = graph.tasks, Kernels(graph)
    device, name = on_device(graph), tasks["name"].astype(object).to_numpy()
    copies = is_in(tasks["kind"], *COPIES)
    classes = np.where(copies, tasks["kind"].astype(object), kernels.classes.astype(object))
    operators = np.array([*graph.operators["name"].astype(object), None], object)
    nameless = np.full(len(tasks), None, object)
    frame = pd.DataFrame(
        {
            "kernel class": np.where(device, classes, nameless),
            "kernel": np.where(device, name, nameless),
            "operator": operators[tasks["operator"].to_numpy()],
            "module": tasks["module"].astype(object).to_numpy(),
            "phase": tasks["phase"].astype(object).to_numpy(),
            "device_ns": np.where(device, tasks["duration_ns"], 0),
            "host_ns": np.where(device, 0, tasks["work_ns"]),
            "precision": np.where(device & ~copies, kernels.precisions.astype(object), ""),
            "device": device,
            "moved": moved,
        }
    )
    on_link = (graph.lanes["kind"] == "link").to_numpy()[tasks["lane"].to_numpy()]
    return frame[~on_link]  # what a collective transfers is in the collective


def _find_moved(pair: Counterparts) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Tell which tasks are elsewhere in the other recording; of that, nothing is counted."""
    rows = np.flatnonzero(pair.partner != NONE)
    moved = np.zeros(len(pair.partner), bool)
    places = [_places(graph) for graph in (pair.graph, pair.other)]
    moved[rows] = places[0][rows] != places[1][pair.partner[rows]]
    return moved, np.zeros(len(pair.other.tasks), bool)


def _places(graph: Graph) -> Names:
    """Return where each task is: the role of its lane, its phase and its module."""
    tasks = graph.tasks
    role = graph.lanes["role"].astype(object).to_numpy()[tasks["lane"].to_numpy()]
    phase, module = (tasks[name].astype(object).fillna("") for name in ("phase", "module"))
    places = np.empty(len(tasks), object)
    places[:] = [*zip(role, phase, module, strict=True)]
    return places


def _make_rows(described: list[pd.DataFrame], graphs: tuple[Graph, Graph], by: str) -> list[Row]:
    """Return the rows of one table, those that change most first."""
    sums = [_sum(frame, by, graph.steps) for frame, graph in zip(described, graphs, strict=True)]
    none = _Sums(0.0, 0.0, 0.0, "", 0.0)
    rows = []
    for name in dict.fromkeys([*sums[0], *sums[1]]):
        one, other = (side.get(name, none) for side in sums)
        rows.append(
            Row(
                name=name,
                count=(one.count, other.count),
                device_ns=(one.device_ns, other.device_ns),
                host_ns=(one.host_ns, other.host_ns),
                precision=(one.precision, other.precision),
                moved=one.moved,
            )
        )
    return sorted(rows, key=lambda row: -abs(row.change_ns))


@dataclass(frozen=True)
class _Sums:
    """What a step does of one name in one recording."""

    count: float
    device_ns: float
    host_ns: float
    precision: str
    moved: float


def _sum(frame: pd.DataFrame, by: str, steps: int) -> dict[str, _Sums]:
    """Return, by name, the sums of a step.

    Device work is counted; where a name has none, its pieces on the host.
    """
    frame = frame[frame[by].notna()]
    groups = frame.groupby(by, sort=False)
    sums = groups[["device", "device_ns", "host_ns", "moved"]].sum() / steps
    pieces = groups.size() / steps
    weighed = frame[frame["device"]].groupby([by, "precision"], sort=False)["device_ns"].sum()
    most = weighed.sort_values().reset_index().drop_duplicates(by, keep="last")
    precision = dict(zip(most[by], most["precision"], strict=True))
    count = sums["device"].where(sums["device"] > 0, pieces)
    columns = (count, sums["device_ns"], sums["host_ns"], sums["moved"])
    return {
        str(name): _Sums(number, device, host, precision.get(name, ""), moved)
        for name, number, device, host, moved in zip(
            sums.index, *(column.tolist() for column in columns), strict=True
        )
    }
