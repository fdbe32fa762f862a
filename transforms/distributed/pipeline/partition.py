"""Where a model is cut into pipeline stages: by the order of its modules, balanced by time.

In: the graph of one rank whose recording names modules. Out: the part of the step that every task
belongs to: what runs once per step before and after the passes, and the passes of each piece of the
model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TransformError
from foretrace.transforms.edit.columns import Mask, Rows, is_in
from foretrace.transforms.edit.parameters import did_you_mean
from foretrace.transforms.edit.select import has_device, launch_edges, on_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from foretrace.graph.model import Graph

HEAD, TAIL, FIRST = 0, 1, 2
"""Numbers of parts: before the first forward task, after the last backward task, and the passes: of
piece q `FIRST` + 2q forward and `FIRST` + 2q + 1 backward."""
NUMBERED = re.compile(r"^(?:[^.]+\.)*?\d+(?=\.|$)")
"""A path up to its first numbered module: one layer of a list or a sequence."""


@dataclass(frozen=True)
class Cut:
    """The part of each task (one of the numbers above), and the layers that begin the pieces."""

    part: Rows
    begins: tuple[str, ...]

    @property
    def pieces(self) -> int:
        """How many pieces the model is in."""
        return len(self.begins)

    def of(self, piece: int, direction: str) -> int:
        """Return the number of a piece's forward or backward pass."""
        return FIRST + 2 * piece + (direction == "backward")


def cut_model(graph: Graph, pieces: int, cuts: Sequence[str] | None = None) -> Cut:
    """Cut the model of *graph*.

    Parameters
    ----------
    graph
        A job of one rank.
    pieces
        How many.
    cuts
        The modules at which the second and later pieces begin; by default layers, so that the
        largest piece is as short as can be.

    Raises
    ------
    TransformError
        No modules are named, there are fewer layers than pieces, a module of *cuts* is not there,
        or the step is not one forward and one backward pass.

    Examples
    --------
    >>> import pandas as pd
    >>> from foretrace.graph.literal import literal
    >>> modules = pd.Categorical(["0", "1", "1", "0", None])
    >>> graph = literal(
    ...     [("f", "host", 0, 5, "forward"), ("f", "host", 0, 5, "forward"),
    ...      ("b", "host", 0, 9, "backward"), ("b", "host", 0, 9, "backward"),
    ...      ("step", "host", 0, 4, "optimizer")],
    ...     columns={"module": modules},
    ... )
    >>> cut_model(graph, 2).part.tolist(), cut_model(graph, 2).begins
    ([2, 4, 5, 3, 1], ('0', '1'))
    """
    host = _HostTasks(graph)
    if cuts is not None and len(cuts) != pieces - 1:
        raise TransformError(
            f"cuts={list(cuts)!r} names {len(cuts)} modules; {pieces} pieces have {pieces - 1} cuts"
        )
    layers, label = _layers(graph, host, cuts or ())
    begins = _begins(layers, cuts) if cuts is not None else _balance(graph, layers, label, pieces)
    part = np.full(len(graph.tasks), HEAD, np.int64)
    for rows in host.steps:
        part[rows] = _parts(graph, rows, label, layers, begins)
    return Cut(_add_device(graph, part), tuple(layers[at] for at in begins))


class _HostTasks:
    """The host tasks that train, step by step, in the order of their starts."""

    def __init__(self, graph: Graph) -> None:
        tasks = graph.tasks
        passes = is_in(tasks["phase"], "forward", "backward", "optimizer")
        lane = tasks["lane"].to_numpy()
        host = ~on_device(graph) & ~is_in(graph.lanes["kind"], "link")[lane]
        trains = np.zeros(len(graph.lanes), bool)
        trains[lane[host & passes]] = True
        trains &= ~is_in(graph.lanes["role"], "loader")
        rows = np.flatnonzero(host & trains[lane])
        step, start = (tasks[c].to_numpy()[rows] for c in ("step", "start_ns"))
        rows = rows[np.lexsort((rows, start, step))]
        step = tasks["step"].to_numpy()[rows]
        self.lanes = np.flatnonzero(trains)
        self.steps = [rows[step == one] for one in range(graph.steps)]


def training_lanes(graph: Graph) -> Rows:
    """Return the host lanes that compute the passes or the update."""
    return _HostTasks(graph).lanes


def _layers(graph: Graph, host: _HostTasks, cuts: Sequence[str]) -> tuple[list[str], Rows]:
    """Return the layers in the order of the forward pass, and each task's (−1: of none).

    What runs before and after another layer is no layer but around them, such as the model itself.
    """
    column = graph.tasks["module"]
    if not column.notna().any():
        raise TransformError(
            "this trace names no modules, so the model cannot be cut; record it with foretrace "
            "record, and give the job its model"
        )
    names = [_layer(str(path), cuts) for path in column.cat.categories]
    distinct = list(dict.fromkeys(names))
    code = np.array([*(distinct.index(name) for name in names), -1], np.int64)
    label = code[column.cat.codes.to_numpy()]
    seen = label[_first_pass(graph, host.steps[0])]
    first, last = (np.full(len(distinct) + 1, -1, np.int64) for _ in range(2))
    last[seen] = np.arange(len(seen))
    first[seen[::-1]] = np.arange(len(seen))[::-1]
    order = [code for code in np.argsort(first[:-1], kind="stable").tolist() if first[code] >= 0]
    kept = [c for c in order if not any(first[c] < first[o] < last[c] for o in order)]
    kept = [c for c in order if c in kept or distinct[c] in cuts]
    number = np.full(len(distinct) + 1, -1, np.int64)
    number[kept] = np.arange(len(kept))
    return [distinct[code] for code in kept], number[label]


def _first_pass(graph: Graph, rows: Rows) -> Rows:
    """Return the forward tasks among *rows* before the first backward one."""
    phase = graph.tasks["phase"].take(rows)
    backward = np.flatnonzero(is_in(phase, "backward"))
    until = backward[0] if len(backward) else len(rows)
    return rows[:until][is_in(phase, "forward")[:until]]


def _layer(path: str, cuts: Sequence[str]) -> str:
    """Return the layer that a module path belongs to.

    >>> [_layer(path, ["b.c"]) for path in ("blocks.3.mlp.0", "head.fc", "b.c.d", "b.x")]
    ['blocks.3', 'head', 'b.c', 'b']
    """
    for name in cuts:
        if path == name or path.startswith(f"{name}."):
            return name
    match = NUMBERED.match(path)
    return match[0] if match else path.split(".", 1)[0]


def _begins(layers: list[str], cuts: Sequence[str]) -> list[int]:
    """Return the layers at which the pieces begin, as the user named them."""
    begins = [0]
    for name in cuts:
        if name not in layers:
            raise TransformError(
                f"cuts: no module {name!r} runs in the forward pass{did_you_mean(name, layers)}; "
                f"its layers are {', '.join(layers)}"
            )
        begins.append(layers.index(name))
    if sorted(set(begins)) != begins:
        raise TransformError(f"cuts={list(cuts)!r} are not in the order in which the modules run")
    return begins


def _balance(graph: Graph, layers: list[str], label: Rows, pieces: int) -> list[int]:
    """Return the layers at which the pieces begin so that the longest is as short as can be."""
    if len(layers) < pieces:
        raise TransformError(
            f"{pieces} pieces, and the model has {len(layers)} layers "
            f"({', '.join(layers) or 'none'}); use fewer stages, or name cuts=[...] inside them"
        )
    counts = on_device(graph) if has_device(graph) else ~on_device(graph)
    counts &= (label >= 0) & is_in(graph.tasks["phase"], "forward", "backward")
    work = graph.tasks["work_ns"].to_numpy()[counts]
    weights = np.bincount(label[counts], weights=work.astype(np.float64), minlength=len(layers))
    return balance(weights, pieces)


def balance(weights: npt.NDArray[Any], pieces: int) -> list[int]:
    """Return where *pieces* runs of *weights* begin, none empty, the heaviest as light as can be.

    Examples
    --------
    >>> balance(np.array([1.0, 1.0, 4.0, 1.0, 1.0]), 3)
    [0, 2, 3]
    """
    count = len(weights)
    before = np.concatenate([[0.0], np.cumsum(weights)])
    best = before[1:].copy()
    choice = np.zeros((pieces, count), np.int64)
    for piece in range(1, pieces):
        worse = np.full(count, np.inf)
        for end in range(piece, count):
            begin = np.arange(piece, end + 1)
            heaviest = np.maximum(best[begin - 1], before[end + 1] - before[begin])
            at = int(np.argmin(heaviest))
            worse[end], choice[piece, end] = heaviest[at], begin[at]
        best = worse
    begins, end = [], count - 1
    for piece in range(pieces - 1, -1, -1):
        begins.append(int(choice[piece, end]))
        end = begins[-1] - 1
    return begins[::-1]


def _parts(graph: Graph, rows: Rows, label: Rows, layers: list[str], begins: list[int]) -> Rows:
    """Return the parts of the host tasks of one step, *rows* in order."""
    phase = graph.tasks["phase"].take(rows)
    forward, backward = (is_in(phase, name) for name in ("forward", "backward"))
    if not forward.any() or not backward.any():
        raise TransformError(
            "nothing to change: a step of this job has no forward or no backward pass"
        )
    begin, turn, end = (int(np.flatnonzero(where)[at]) for where, at in
                        ((forward, 0), (backward, 0), (backward, -1)))  # fmt: skip
    own = label[rows]
    piece = np.searchsorted(begins, own, side="right") - 1
    _check_one_pass(forward, turn, own, layers)
    at = np.arange(len(rows))
    ahead = np.maximum.accumulate(np.where(forward & (own >= 0), piece, 0))
    behind = _descending(np.where(backward & (own >= 0), piece, -1), len(begins))
    part = np.where(at < turn, FIRST + 2 * ahead, FIRST + 2 * behind + 1)
    part[forward & (at > turn)] = FIRST + 2 * (len(begins) - 1)
    once = is_in(phase, "optimizer")
    part[(at < begin) | is_in(phase, "load")] = HEAD
    part[(at > end) | (once & (at >= begin))] = TAIL
    return part


def _check_one_pass(forward: Mask, turn: int, own: Rows, layers: list[str]) -> None:
    """Raise where the model's first layer runs forward again after backward has begun."""
    again = np.flatnonzero(forward & (own == 0))
    if len(layers) > 1 and len(again) and again[-1] > turn:
        raise TransformError(
            f"{layers[0]!r} runs forward again after the backward pass has begun (gradient "
            "accumulation, or checkpointing); record the job without it"
        )


def _descending(piece: Rows, pieces: int) -> Rows:
    """Return the piece of each backward task: the labels (−1: none), made to descend.

    Each change stands where the fewest labels contradict it; what has no label goes with what ran
    before.

    >>> _descending(np.array([1, -1, 0, 1, 1, -1, 0, 0, -1]), 2).tolist()
    [1, 1, 1, 1, 1, 1, 0, 0, 0]
    """
    labelled = np.bincount(piece[piece >= 0], minlength=pieces)
    if not labelled.all():
        lacking = int(np.flatnonzero(labelled == 0)[0])
        raise TransformError(
            f"no task of the backward pass of piece {lacking} is known; name other cuts=[...]"
        )
    result = np.full(len(piece), pieces - 1, np.int64)
    change = 0
    for lower in range(pieces - 2, -1, -1):
        early = np.cumsum((piece >= 0) & (piece <= lower))
        late = np.cumsum((piece > lower)[::-1])[::-1]
        wrong = np.append(0, early) + np.append(late, 0)
        change += int(np.flatnonzero(wrong[change:] == wrong[change:].min())[-1])
        result[change:] = lower
    return result


def _add_device(graph: Graph, part: Rows) -> Rows:
    """Give device tasks the part of the call that launched them, or of the task before them."""
    by = launch_edges(graph)
    device = on_device(graph)
    result = part.copy()
    launched = device & (by >= 0)
    result[launched] = part[graph.edges["src"].to_numpy()[by[launched]]]
    lane, start = (graph.tasks[c].to_numpy() for c in ("lane", "start_ns"))
    rows = np.flatnonzero(device)
    rows = rows[np.lexsort((rows, start[rows], lane[rows]))]
    last = np.maximum.accumulate(np.where(launched[rows], np.arange(len(rows)), -1))
    follows = (last >= 0) & (lane[rows[last]] == lane[rows])
    result[rows[follows]] = result[rows[last[follows]]]
    return result
