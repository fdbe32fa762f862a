"""Public Megatron-LM step times under other parallel plans, as rows of the study.

In: vTrain's two files of measured iterations on A100. Out: pairs of plans that differ in two
degrees (several nodes) or in the pipeline (one node), each predicted from one measured time and no
fitted constant, with the null models beside. What proves nothing is left out: `LEFT_OUT`.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING

from foretrace.errors import TraceError
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import cost_at_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from foretrace.transforms.cluster.model import Cluster

MULTI, SINGLE = "ground_truth_multi.csv", "ground_truth_single.csv"
LEFT_OUT = {
    "one node, other dp": "the times were composed from the same all-reduce table, not measured: "
    "T(dp=2) - T(dp=1) is the same to 1e-13 ms for every micro-batch size",
    "one node, other micro-batch": "the times are exactly linear in the number of micro-batches, "
    "and a layer takes as long for any size: the host sets the pace, which totals do not show",
    "one node, other tp": "a layer takes 3.0 to 3.6 ms for any tp: the host sets the pace",
    "175 B, dp <-> pp": "no change and the bubble alone are within 2.5 % already",
    "39.1 B": "rows contradict one another: micro-batch 2 takes longer than 3, although its bubble "
    "is smaller",
    "3.6 and 18.4 B": "few pairs, or tensor parallelism across nodes",
}
"""Parts of the files that prove nothing about a model of plans, and why."""
MODEL = 175.0
"""Billion parameters of the model whose pairs are judged."""
CHANGES = {"tp <-> dp": ("tp", "dp"), "tp <-> pp": ("tp", "pp")}
COLLECTIVES_PER_LAYER = 6
"""All-reduces of tensor parallelism per layer and micro-batch: two each forward, backward, and in
the forward that recomputation repeats (Megatron-LM)."""
VOCABULARY = 51_200
WIDTH = 2
"""Bytes of a value: fp16."""
NODE_GBPS = 100.0
"""GB/s of a node's network: four cards of 200 Gbit/s, an assumption (vTrain does not say)."""
PER_NODE = 8
MS = 1e6


@dataclass(frozen=True)
class MegatronPlan:
    """One measured iteration: the model, the parallel plan, and its time in ns."""

    billions: float
    gpus: int
    batch: int
    micro_batch: int
    hidden: int
    layers: int
    sequence: int
    tp: int
    dp: int
    pp: int
    ns: float

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a rank and step."""
        return self.batch // (self.dp * self.micro_batch)

    @property
    def activation_bytes(self) -> int:
        """What one micro-batch hands from layer to layer."""
        return WIDTH * self.micro_batch * self.sequence * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        embedding = (VOCABULARY + self.sequence) * self.hidden
        return 12 * self.layers * self.hidden**2 + embedding


_COLUMNS = {
    "billions": "Parameters (billion)",
    "gpus": "# GPUs",
    "batch": "global batch",
    "micro_batch": "micro batch",
    "hidden": "hidden size",
    "layers": "# layers",
    "sequence": "sequence length",
    "tp": "tensor parallelism",
    "dp": "data parallelism",
    "pp": "pipeline parallelism",
    "ns": "iteration time (ms)",
}


@dataclass(frozen=True)
class MegatronRow:
    """One plan predicted from another. Times in ns.

    ``null_same_ns`` is "the step does not change", ``null_ideal_ns`` the bubble without
    communication (several nodes) or no bubble at all (one node).
    """

    change: str
    before: MegatronPlan
    after: MegatronPlan
    predicted_ns: float
    null_same_ns: float
    null_ideal_ns: float

    @property
    def errors(self) -> tuple[float, float, float]:
        """Signed relative errors: predicted, "no change", the other null model."""
        every = (self.predicted_ns, self.null_same_ns, self.null_ideal_ns)
        predicted, same, ideal = (ns / self.after.ns - 1 for ns in every)
        return predicted, same, ideal


def mean_errors(rows: Sequence[MegatronRow]) -> tuple[float, float, float]:
    """Return the mean of the absolute errors of *rows*."""
    predicted, same, ideal = (
        sum(abs(error) for error in column) / len(rows)
        for column in zip(*(row.errors for row in rows), strict=True)
    )
    return predicted, same, ideal


def read_plans(path: Path) -> list[MegatronPlan]:
    """Read one of vTrain's files; a plan measured twice counts once, with the mean.

    Raises
    ------
    TraceError
        The file cannot be read, or lacks a column.
    """
    try:
        rows = list(csv.DictReader(path.read_text("utf-8-sig").splitlines()))
        plans = [_plan(row) for row in rows]
    except (OSError, ValueError, KeyError) as error:
        raise TraceError(f"{path}: no table of Megatron iterations ({error})") from None
    times: dict[tuple[float, ...], list[MegatronPlan]] = {}
    for plan in plans:
        key = tuple(
            getattr(plan, field.name) for field in fields(MegatronPlan) if field.name != "ns"
        )
        times.setdefault(key, []).append(plan)
    return [
        MegatronPlan(**{**vars(same[0]), "ns": sum(each.ns for each in same) / len(same)})
        for same in times.values()
    ]


def _plan(row: dict[str, str]) -> MegatronPlan:
    texts = {name: row.get(column) for name, column in _COLUMNS.items()}
    texts["billions"] = texts["billions"] or "0"  # the file of one node does not say
    values = {name: float(text or "") for name, text in texts.items()}
    whole = {name: int(v) for name, v in values.items() if name not in ("billions", "ns")}
    return MegatronPlan(billions=values["billions"], ns=values["ns"] * MS, **whole)


def plan_rows(folder: Path) -> list[MegatronRow]:
    """Return the pairs over several nodes: tensor parallelism traded for the other two."""
    plans = [plan for plan in read_plans(folder / MULTI) if plan.billions == MODEL]
    cluster = load_cluster("dgx-a100", nodes=plans[0].gpus // PER_NODE)
    cluster = cluster.with_network(gb_per_s=NODE_GBPS)
    return [
        MegatronRow(
            change,
            before,
            after,
            predicted_ns=predicted_ns(cluster, before, after),
            null_same_ns=before.ns,
            null_ideal_ns=before.ns * _computing(after) / _computing(before),
        )
        for change, traded in CHANGES.items()
        for before, after in _pairs(plans, traded)
    ]


def _pairs(
    plans: Iterable[MegatronPlan], traded: tuple[str, ...]
) -> list[tuple[MegatronPlan, MegatronPlan]]:
    """Return plans that differ in *traded* alone, the one with less tensor parallelism first."""
    free = (*traded, "ns")
    kept = [field.name for field in fields(MegatronPlan) if field.name not in free]
    return [
        (before, after)
        for before, after in permutations(plans, 2)
        if getattr(before, traded[0]) < getattr(after, traded[0])
        and all(getattr(before, name) == getattr(after, name) for name in kept)
    ]


def predicted_ns(cluster: Cluster, before: MegatronPlan, after: MegatronPlan) -> float:
    """Predict *after*: the computing *before* shows, the bubble and communication of *after*."""
    rounds = before.micro_batches + before.pp - 1
    computing = (before.ns - _reducing(cluster, before)) / rounds - _exchanging(cluster, before)
    per_round = computing * (_share(after) / _share(before)) + _exchanging(cluster, after)
    return per_round * (after.micro_batches + after.pp - 1) + _reducing(cluster, after)


def _share(plan: MegatronPlan) -> float:
    """Return the part of the batch and model that a rank computes in one round."""
    return plan.micro_batch / (plan.tp * plan.pp)


def _computing(plan: MegatronPlan) -> float:
    return (plan.micro_batches + plan.pp - 1) * _share(plan)


@lru_cache(maxsize=256)
def _exchanging(cluster: Cluster, plan: MegatronPlan) -> float:
    """Return what one micro-batch exchanges in a stage, in ns: in its layers and to the next."""
    groups = [range(first, first + plan.tp) for first in range(0, PER_NODE, plan.tp)]
    reduced = cost_at_once(cluster, groups, "all_reduce", plan.activation_bytes).ns
    inside = COLLECTIVES_PER_LAYER * plan.layers / plan.pp * reduced
    if plan.pp == 1:
        return inside
    stage = plan.tp * plan.dp
    pairs = [(device, device + stage) for device in range(min(PER_NODE, stage))]
    return inside + 2.0 * cost_at_once(cluster, pairs, "send", plan.activation_bytes).ns


@lru_cache(maxsize=256)
def _reducing(cluster: Cluster, plan: MegatronPlan) -> float:
    """Return the reduction of the gradients over the replicas of a stage, in ns."""
    groups = [range(first, plan.tp * plan.dp, plan.tp) for first in range(plan.tp)]
    size = WIDTH * plan.parameters / (plan.tp * plan.pp)
    return float(cost_at_once(cluster, groups, "all_reduce", size).ns)


def pipeline_rows(folder: Path) -> list[MegatronRow]:
    """Return the pairs on one node: the same job with more pipeline stages."""
    plans = read_plans(folder / SINGLE)
    free = ("pp", "gpus", "ns")
    kept = [field.name for field in fields(MegatronPlan) if field.name not in free]
    same: dict[tuple[float, ...], list[MegatronPlan]] = {}
    for plan in sorted(plans, key=lambda plan: plan.pp):
        same.setdefault(tuple(getattr(plan, name) for name in kept), []).append(plan)
    return [
        MegatronRow(
            f"pp {before.pp} -> {after.pp}",
            before,
            after,
            predicted_ns=before.ns * stages_length(after) / stages_length(before),
            null_same_ns=before.ns,
            null_ideal_ns=before.ns * before.pp / after.pp,
        )
        for group in same.values()
        for at, before in enumerate(group)
        for after in group[at + 1 :]
    ]


def stages_length(plan: MegatronPlan) -> float:
    """Return the length of a step in operations: layers split evenly, the vocabulary's last.

    The product with the vocabulary stays on the last stage, which then sets the pace.
    """
    layer = plan.hidden * (24 * plan.hidden + 4 * plan.sequence)
    stages = [plan.layers / plan.pp * layer] * plan.pp
    stages[-1] += 2 * VOCABULARY * plan.hidden
    return pipeline_length(stages, plan.micro_batches)


def pipeline_length(stages: Sequence[float], micro_batches: int) -> float:
    """Return how long a pipeline without communication takes: one pass, then the slowest stage.

    *stages* is what one micro-batch costs on each, forward and backward.

    >>> pipeline_length([10, 10], 4), pipeline_length([10, 30], 2)
    (50, 70)
    """
    return sum(stages) + (micro_batches - 1) * max(stages)
