"""Replays and a format in, files out: for Perfetto, networkx, pandas, Chakra."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from foretrace.errors import ForetraceError
from foretrace.export.chakra import export_chakra
from foretrace.export.chrome import export_chrome
from foretrace.export.pftrace import check_perfetto, export_pftrace
from foretrace.export.tracks import list_variants
from foretrace.graph.views import to_frame, to_networkx
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    import networkx as nx

    from foretrace.analysis.unchanged.baseline import Experiment
    from foretrace.replaying.timeline import Timeline


@dataclass(frozen=True)
class Format:
    """How the name of such a file ends, what opens it, and whether Perfetto's package is needed."""

    suffix: str
    hint: str
    needs_perfetto: bool = False


_UI = "open it at https://ui.perfetto.dev"
FORMATS = {
    "json": Format(".json", _UI),
    "pftrace": Format(".pftrace", _UI, needs_perfetto=True),
    "graphml": Format(".graphml", "read it with networkx.read_graphml"),
    "parquet": Format(".parquet", "read it with pandas.read_parquet"),
    "chakra": Format(".et", "a Chakra execution trace", needs_perfetto=True),
}


def format_of(path: Path, given: str | None) -> str:
    """Return the format *given*, else the one that the name of *path* tells, else JSON.

    Raises
    ------
    ForetraceError
        There is no such format, or what writes it is not installed.
    """
    by_suffix = {each.suffix: name for name, each in FORMATS.items()}
    wanted = given if given is not None else by_suffix.get(path.suffix.lower(), "json")
    if wanted not in FORMATS:
        raise ForetraceError(f"there is no format {wanted!r}: give one of {', '.join(FORMATS)}")
    if FORMATS[wanted].needs_perfetto:
        check_perfetto()
    return wanted


def export_as(wanted: str, experiment: Experiment, path: Path) -> list[Path]:
    """Write the replays of *experiment* as *wanted*, one of `FORMATS`; return the files written.

    Timelines hold both; a graph and an execution trace are of the job after the change.
    """
    shown = list_variants(experiment)
    if wanted == "chakra":
        return export_chakra(experiment.after, path)
    if wanted == "json":
        export_chrome(shown, path)
    elif wanted == "pftrace":
        export_pftrace(shown, path)
    elif wanted == "graphml":
        write_atomically(path, as_graphml(experiment.after))
    else:
        frames = [as_frame(each.timeline).assign(variant=each.label) for each in shown]
        write_atomically(path, _parquet(pd.concat(frames)))
    return [path]


def as_frame(timeline: Timeline) -> pd.DataFrame:
    """Return the tasks of *timeline* as one readable table, with their times in the replay.

    Columns as in `foretrace.graph.views.to_frame`, and ``replayed_start_ns``, ``replayed_end_ns``,
    and ``path_ns``: what the task's own work takes of the critical path, in ns of a window.
    """
    tasks = to_frame(timeline.graph).sort_index()
    path = timeline.critical_path
    path = path[path["why"] == "work"]
    lengths = (path["to_ns"] - path["from_ns"]) // timeline.steady.cycle
    on_path = lengths.groupby(path["task"]).sum()
    return tasks.assign(
        replayed_start_ns=timeline.start_ns,
        replayed_end_ns=timeline.end_ns,
        path_ns=on_path.reindex(tasks.index, fill_value=0).astype("int64"),
    )


def as_network(timeline: Timeline) -> nx.MultiDiGraph:
    """Return the graph of *timeline* for networkx, its nodes with their times in the replay."""
    graph = to_networkx(timeline.graph)
    for row, (start, end) in enumerate(zip(timeline.start_ns, timeline.end_ns, strict=True)):
        graph.nodes[row].update(replayed_start_ns=int(start), replayed_end_ns=int(end))
    return graph


def as_graphml(timeline: Timeline) -> bytes:
    """Return `as_network` as GraphML; what XML cannot hold is replaced, see `_legal`."""
    import networkx as nx

    graph = as_network(timeline)
    every = (
        *(values for _, values in graph.nodes(data=True)),
        *(edge[-1] for edge in graph.edges.data()),
    )
    for values in every:
        values.update({key: _legal(text) for key, text in values.items() if isinstance(text, str)})
    out = io.BytesIO()
    nx.write_graphml_xml(graph, out)
    return out.getvalue()


def _legal(text: str) -> str:
    """Return *text* as XML 1.0 can hold it.

    >>> _legal("gemm" + chr(0))
    'gemm\N{REPLACEMENT CHARACTER}'
    """
    whole = text.encode(errors="replace").decode()
    return "".join(
        char if (char >= " " and char not in "\ufffe\uffff") or char in "\t\n\r" else "\ufffd"
        for char in whole
    )


def _parquet(table: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    table.reset_index(names="task").to_parquet(out, index=False)
    return out.getvalue()
