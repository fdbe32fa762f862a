"""Small jobs with gradients, on a CPU and on a device, written down by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.graph.literal import literal
from foretrace.graph.model import Platform
from foretrace.tracer.trace import Device
from foretrace.transforms.costs.operators import ACCUMULATE
from tests.support.jobs.simple import META

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.graph.model import Graph

MS = 1_000_000
Row = tuple[str, int, str, str | None]
SHAPES = ("[[250]]", "[[1000,250]]", "[[500,500]]")
"""A bias and two weights of 1 MB each, in the order in which backward finishes them."""


def cpu_job(
    *,
    steps: int = 1,
    forward: int = 20 * MS,
    backward: int = 10 * MS,
    update: int = 5 * MS,
    shapes: Sequence[str | None] = SHAPES,
    **meta: Any,
) -> Graph:
    """Build a job of one thread: forward, per gradient a backward task and its end, an update.

    Accumulating takes no time. All times in ns.
    """
    rows: list[Row] = [("fwd", forward, "forward", None)]
    for shape in shapes:
        rows += [("bwd", backward, "backward", None), ("accumulate", 0, "backward", shape)]
    rows.append(("update", update, "optimizer", None))
    return _one_thread(rows, steps, replace(META, **meta))


def accumulating_job(*, passes: int) -> Graph:
    """Build a step of several passes over the same two gradients."""
    once: list[Row] = [("fwd", 20 * MS, "forward", None)]
    for shape in SHAPES[1:]:
        once += [("bwd", 10 * MS, "backward", None), ("accumulate", 0, "backward", shape)]
    return _one_thread([*once * passes, ("update", 5 * MS, "optimizer", None)], 1, META)


def _one_thread(rows: Sequence[Row], steps: int, meta: Any) -> Graph:
    count = len(rows) * steps
    every = [*rows] * steps
    end = np.cumsum([work for _, work, *_ in every])
    step = np.repeat(np.arange(steps, dtype=np.int32), len(rows))
    is_end = [name == "accumulate" for name, *_ in every]
    return literal(
        [(name, "host", 0, work, phase) for name, work, phase, _ in every],
        columns={
            "step": step,
            "start_ns": end - [work for _, work, *_ in every],
            "operator": np.where(is_end, np.arange(count), -1),
        },
        operators={
            "name": [ACCUMULATE if own else "aten::mm" for own in is_end],
            "parent": np.full(count, -1, np.int32),
            "step": step,
            "shapes": [shape for *_, shape in every],
            "dtypes": ['["float"]' if own else None for own in is_end],
        },
        meta=meta,
        wrap=True,
        measured_step_ns=float(end[-1]) / steps,
    )


def gpu_job(
    *, steps: int = 1, kernel: int = MS, device: str = "NVIDIA A100-SXM4-40GB", shapes: bool = True
) -> Graph:
    """Build a job on a device: two forward kernels, two backward ones with a gradient each, a last.

    The host launches in 10 us each. Lanes: 0 main thread, 1 autograd, 2 stream.
    """
    calls = (
        ("fwd", 0, "forward", None),
        ("fwd", 0, "forward", None),
        ("bwd", 1, "backward", "[[1000,250]]"),
        ("bwd", 1, "backward", "[[500,500]]"),
        ("update", 0, "optimizer", None),
    )
    tasks: list[Any] = []
    edges: list[Any] = []
    step: list[int] = []
    operator: list[int] = []
    ends: list[tuple[str, int]] = []
    for number in range(steps):
        for name, lane, phase, shape in calls:
            edges.append((len(tasks), len(tasks) + 1, "launch", 6_000))
            tasks += [("launch", "launch", lane, 10_000, phase), (name, "kernel", 2, kernel, phase)]
            operator += [-1, -1]
            if shape is not None:
                operator.append(len(ends))
                tasks.append(("accumulate", "host", lane, 1_000, phase))
                ends.append((shape, number))
        step += [number] * (len(tasks) - len(step))
    return literal(
        tasks,
        edges,
        columns={
            "step": np.array(step, np.int32),
            "operator": operator,
            "start_ns": np.arange(len(tasks)) * 10_000,
        },
        operators={
            "name": [ACCUMULATE] * len(ends),
            "parent": [-1] * len(ends),
            "step": [number for _, number in ends],
            "shapes": [shape if shapes else None for shape, _ in ends],
            "dtypes": ['["float"]'] * len(ends),
        },
        meta=replace(META, devices=(Device(0, device),)),
        platform=Platform(),
        wrap=True,
    )


def passes_job(*passes: str, update: str = "update") -> Graph:
    """Build a step of backward passes, each over the named parameters, with an update behind each.

    Parameter "a" has 1 MB, "b" 2 MB, "c" 3 MB.
    """
    rows: list[Row] = []
    for each in passes:
        rows.append(("fwd", 20 * MS, "forward", None))
        for name in each:
            shape = f"[[1000,{250 * (1 + 'abc'.index(name))}]]"
            rows += [("bwd", 10 * MS, "backward", None), ("accumulate", 0, "backward", shape)]
        rows.append((update, 5 * MS, "optimizer", None))
    named = [[name, [1000, 250 * (1 + "abc".index(name))], 4] for name in "abc"]
    return _one_thread(rows, 1, replace(META, extra={**META.extra, "parameters": named}))


def sparse_job(*, rows: int, table: tuple[int, int], distinct: int | None = None) -> Graph:
    """Build a job whose first gradient is that of a looked-up *table*: so many *rows* of it.

    The second one is dense, of 1 MB. The update touches the rows for 8 ms, the rest for 5 ms.
    """
    counted = {} if distinct is None else {"sparse_gradients": [["table", distinct]]}
    named = [["table", list(table), 4], ["dense", [500, 500], 4]]
    shapes = [
        f"[[{table[0]},{table[1]}]]",
        f"[[1,{rows}],[{rows},{table[1]}]]",
        "[[500,500]]",
        f"[[{table[0]},{table[1]}],[{table[0]},{table[1]}]]",
    ]
    return literal(
        [("fwd", "host", 0, 20 * MS, "forward"), ("bwd", "host", 0, 10 * MS, "backward"),
         ("accumulate", "host", 0, 0, "backward"), ("bwd", "host", 0, 10 * MS, "backward"),
         ("accumulate", "host", 0, 0, "backward"), ("rows", "host", 0, 8 * MS, "optimizer"),
         ("rest", "host", 0, 5 * MS, "optimizer")],
        columns={"operator": [-1, -1, 1, -1, 2, 3, -1],
                 "start_ns": np.cumsum([0, 20, 10, 0, 10, 0, 8]) * MS},
        operators={
            "name": [ACCUMULATE, "aten::_sparse_coo_tensor_unsafe", ACCUMULATE, "aten::add_"],
            "parent": [-1, 0, -1, -1],
            "shapes": shapes,
            "dtypes": ['["float"]', '["long int","float"]', '["float"]', '["float","float"]'],
            "phase": ["backward"] * 3 + ["optimizer"],
        },
        meta=replace(META, extra={**META.extra, "parameters": named, **counted}),
        wrap=True,
    )  # fmt: skip
