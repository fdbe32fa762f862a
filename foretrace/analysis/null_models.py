"""The constants of the Daydream paper (ATC'20), as a null model to compare predictions with.

Mixed precision makes compute-bound kernels 3 times and all others 2 times as fast and leaves the
host alone; a fused optimizer is one kernel as long as the sum of those it replaces; work is
linear in the batch; loading never waits for a core and is handed over for free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.analysis.prediction import predict_from
from foretrace.analysis.unchanged.baseline import replay_scenario
from foretrace.errors import TransformError
from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.batching.gradient_accumulation import per_batch
from foretrace.transforms.compute.faster_kernels import faster_kernels
from foretrace.transforms.costs.kernel_names import classes
from foretrace.transforms.costs.operators import task_operator_classes
from foretrace.transforms.costs.optimizer_traffic import find_update, host_update
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.primitives import insert, insert_kernels, scale
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.repeat import repeat
from foretrace.transforms.edit.select import first_per_step, has_device
from foretrace.transforms.host.dataloader import dataloader
from foretrace.transforms.host.faster_host import faster_host
from foretrace.transforms.host.remove_sync import remove_sync
from foretrace.transforms.scenario import Scenario, WhatIf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.graph.model import Graph

COMPUTE_BOUND = ("gemm", "conv", "attention")
COMPUTE_SPEEDUP, MEMORY_SPEEDUP = 3.0, 2.0


def apply_paper_constants(scenario: Iterable[Any]) -> Scenario:
    """Return *scenario* with every what-if done by the paper's constants.

    Raises
    ------
    TransformError
        The paper has no rule for one of them.

    Examples
    --------
    >>> from foretrace.transforms.scenario import parse_scenario
    >>> [str(what_if) for what_if in apply_paper_constants(parse_scenario(["amp"]))]
    ['amp']
    """
    what_ifs = []
    for change in scenario:
        rule = _RULES.get(getattr(change, "name", ""))
        if rule is None:
            raise TransformError(f"the paper has no rule for {change}")
        what_ifs.append(WhatIf(change.name, rule, change.parameters))
    return tuple(what_ifs)


def predict_by_paper(baseline: Baseline, scenario: Iterable[Any]) -> float | None:
    """Return the step in ns by the paper's constants; ``None`` where they cannot tell."""
    try:
        return predict_from(replay_scenario(baseline, apply_paper_constants(scenario))).predicted_ns
    except TransformError:
        return None


def _amp(graph: Graph, **_: Any) -> Graph:
    if has_device(graph):
        where = is_in(graph.tasks["kind"], "kernel")
        heavy = np.isin(classes(graph.tasks["name"]), COMPUTE_BOUND)
    else:
        kinds = task_operator_classes(graph)
        where, heavy = kinds != "other", np.isin(kinds, COMPUTE_BOUND)
    factor = np.where(heavy, 1 / COMPUTE_SPEEDUP, 1 / MEMORY_SPEEDUP)
    return scale(graph, where, factor, cost="prior")


def _fused_optimizer(graph: Graph, **_: Any) -> Graph:
    is_device = has_device(graph)
    where = find_update(graph).where if is_device else host_update(graph)
    first = first_per_step(graph, where)
    if not len(first):
        raise TransformError("nothing to change: no task in the optimizer phase")
    work = graph.tasks["work_ns"].to_numpy()
    columns: dict[str, Any] = {
        "place": "before",
        "name": "fused optimizer step (paper)",
        "work_ns": int(work[where].sum() / len(first)),
        "cost": "prior",
    }
    if is_device:
        graph, _rows = insert_kernels(graph, first, **columns)
    else:
        graph, _rows = insert(graph, first, kind="host", **columns)
    return remove(graph, np.append(where, np.zeros(len(graph.tasks) - len(where), bool)))


def _batch_size(graph: Graph, *, n: int, recorded: int | None = None) -> Graph:
    before = recorded or graph.meta.batch_size
    if before is None:
        raise TransformError("the trace does not say its batch size; give recorded=...")
    work = ~is_in(graph.tasks["phase"], "optimizer")
    device = is_in(graph.tasks["kind"], *DEVICE_KINDS)
    loads = is_in(graph.tasks["phase"], "load") & is_in(graph.tasks["kind"], "host", "load")
    where = work & (device | loads if has_device(graph) else ~device)
    return scale(graph, where, n / before, cost="prior")


def _gradient_accumulation(graph: Graph, *, k: int) -> Graph:
    return repeat(graph, per_batch(graph), k)[0]


def _dataloader(graph: Graph, **parameters: Any) -> Graph:
    changed = dataloader(graph, **parameters)
    taken = is_in(changed.tasks["name"], "take a batch from a worker (predicted)")
    return scale(changed, taken, 0.0, cost="prior")


_RULES: dict[str, Callable[..., Graph]] = {
    "amp": _amp,
    "fused_optimizer": _fused_optimizer,
    "batch_size": _batch_size,
    "gradient_accumulation": _gradient_accumulation,
    "dataloader": _dataloader,
    "faster_kernels": faster_kernels,
    "faster_host": faster_host,
    "remove_sync": remove_sync,
}
