"""Results of the campaign in, the table out: a row for each job and what-if.

Predictions are made here, from the recordings as the package reads them now: after a change of a
rule nothing is measured again. Those of held-out architectures are made only when asked for.
"""

from __future__ import annotations

import json
import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmarks.truth.campaign import CALIBRATION, RECORDING, Visit, described
from benchmarks.truth.plain_plan import PROCESSES
from benchmarks.truth.spec import BASE, Side, sides_of
from benchmarks.truth.ways import WAYS
from foretrace.analysis.evidence.validation_scope import describe_cpu
from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.doubts import name_doubts
from foretrace.errors import ForetraceError
from foretrace.graph.build import build
from foretrace.tracer.readers.load import load
from foretrace.tracer.step_stats import trimmed_mean
from foretrace.transforms.edit.provenance import MEASURED
from foretrace.transforms.measured.calibration import read_calibration
from foretrace.transforms.scenario import parse_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.truth.spec import DrawnJob
    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.calibration import Calibration


def make_table(
    jobs: Sequence[DrawnJob], folder: Path, *, look: bool, say: Callable[[str], None]
) -> pd.DataFrame:
    """Return a row for each what-if of each job that was measured."""
    rows: list[dict[str, Any]] = []
    for job in jobs:
        visit = Visit(job, folder / job.name)
        if not visit.result("plain.0").exists():
            continue
        is_shown = look or not job.held_out
        say(f"predicting {job.name}" if is_shown else f"{job.name}: held out")
        rows += rows_of(visit, is_shown=is_shown)
    return pd.DataFrame(rows)


def rows_of(visit: Visit, *, is_shown: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of one job; without predictions unless *is_shown*."""
    truth = read_truth(visit)
    about = {**described(visit.job), **_recorded_step(visit)}
    recorded = _Recorded(visit) if is_shown else None
    for side in sides_of(visit.job):
        if side.name == BASE:
            continue
        row = {**about, "change": side.name, "what_if": " + ".join(side.what_ifs)}
        row.update(compare_sides(truth, side.name))
        if recorded is not None:
            row.update(recorded.predict(side))
        yield row


def read_truth(visit: Visit) -> dict[str, Any]:
    """Return all blocks of the plain processes, their errors, and how busy others were."""
    results = [
        json.loads(path.read_text("utf-8"))
        for number in range(PROCESSES)
        if (path := visit.result(f"plain.{number}")).exists()
    ]
    return {
        "blocks": [
            {**block, "process": number}
            for number, result in enumerate(results)
            for block in result["blocks"]
        ],
        "errors": {name: why for each in results for name, why in each["errors"].items()},
        "others": max((result["others"] for result in results), default=0.0),
    }


def compare_sides(truth: dict[str, Any], name: str) -> dict[str, Any]:
    """Return how long steps of base and *name* were: every time, means, their ratio, its noise.

    In each process the mean of all steps of a side stands against that of the base: the median of
    its rounds would be too low, since a round has more turns of the base, and what disturbs only
    makes a turn longer. ``noise`` is the share that the ratio may be off: two standard errors over
    the rounds of all processes.
    """
    if problem := truth["errors"].get(name) or truth["errors"].get(BASE):
        return {"problem": problem, "others": truth["others"]}
    rounds: dict[tuple[int, int], dict[str, list[list[int]]]] = {}
    for block in truth["blocks"]:
        sides = rounds.setdefault((block["process"], block["block"]), {})
        sides.setdefault(block["side"], []).append(block["step_ns"])
    paired = {key: sides for key, sides in rounds.items() if name in sides and BASE in sides}
    base = [[ns for turn in sides[BASE] for ns in turn] for sides in paired.values()]
    after = [[ns for turn in sides[name] for ns in turn] for sides in paired.values()]
    if not paired:
        return {"problem": "not measured", "others": truth["others"]}
    ratios = np.log([fmean(new) / fmean(old) for old, new in zip(base, after, strict=True)])
    before_ns = trimmed_mean([ns for each in base for ns in each])
    own = [block for block in truth["blocks"] if block["side"] == BASE]
    steps = sum(len(block["step_ns"]) for block in own)
    return {
        "problem": "",
        "base_ns": before_ns,
        "after_ns": before_ns * math.exp(fmean(_ratio_of_means(paired, name).values())),
        "noise": 2 * float(np.std(ratios, ddof=1)) / len(ratios) ** 0.5 if len(ratios) > 1 else 1.0,
        "base_steps_ns": base,
        "after_steps_ns": after,
        "process_of_round": [process for process, _ in paired],
        "faults": sum(block["faults"] for block in own) / steps,
        "cpu_per_wall": sum(b["cpu_ns"] for b in own) / sum(sum(b["step_ns"]) for b in own),
        "others": truth["others"],
    }


def _ratio_of_means(
    rounds: dict[tuple[int, int], dict[str, list[list[int]]]], name: str
) -> dict[int, float]:
    """Return for each process ln of the mean step of side *name* over that of the base."""
    every: dict[int, dict[str, list[int]]] = {}
    for (process, _), sides in rounds.items():
        steps = every.setdefault(process, {name: [], BASE: []})
        for side, known in steps.items():
            known += [ns for turn in sides[side] for ns in turn]
    return {process: math.log(fmean(of[name]) / fmean(of[BASE])) for process, of in every.items()}


def _recorded_step(visit: Visit) -> dict[str, Any]:
    """Return the step as the recorder saw it; of held-out jobs, too: it is no prediction."""
    try:
        meta = load(visit.folder / RECORDING).meta
    except (ForetraceError, OSError) as error:
        return {"recorder_problem": str(error)}
    return {
        "recorder_problem": "",
        "recorded_ns": trimmed_mean(meta.unprofiled_step_ns),
        "profiled_ns": fmean(meta.profiled_step_ns),
        "recorded_steps_ns": list(meta.unprofiled_step_ns),
    }


class _Recorded:
    """The recording of a job and its calibration, read once for all what-ifs."""

    def __init__(self, visit: Visit) -> None:
        self.graph: Graph | None = None
        self.calibration: Calibration | None = None
        self.why = self.hardware = ""
        try:
            self.graph = build(load(visit.folder / RECORDING))
            self.hardware = describe_cpu(self.graph)
            if (visit.folder / CALIBRATION).exists():
                self.calibration = read_calibration(visit.folder / CALIBRATION)
        except (ForetraceError, OSError) as error:
            self.why = str(error)

    def predict(self, side: Side) -> dict[str, Any]:
        """Return the columns of both ways to predict *side*."""
        columns: dict[str, Any] = {"hardware": self.hardware}
        for way, calibration in zip(WAYS, (None, self.calibration), strict=True):
            if self.graph is None or (way == "calibrated" and calibration is None):
                found = {"refused": self.why or "no calibration"}
            else:
                found = _predict(self.graph, side, calibration)
            columns.update({f"{way}_{name}": value for name, value in found.items()})
        return columns


def _predict(graph: Graph, side: Side, calibration: Calibration | None) -> dict[str, Any]:
    try:
        prediction = predict(graph, parse_scenario(list(side.what_ifs)), calibration)
    except ForetraceError as error:
        return {"refused": str(error)}
    low, high = prediction.interval_ns
    return {
        "refused": "",
        "ns": prediction.predicted_ns,
        "low_ns": low,
        "high_ns": high,
        "status": prediction.status,
        "doubts": ", ".join(name_doubts(prediction.doubts)),
        "from_ns": prediction.measured.step_ns,
        "replay_error": prediction.replayed_before_ns / prediction.measured.step_ns - 1,
        "change_share": prediction.predicted_ns / prediction.measured.step_ns - 1,
        "is_timed": prediction.costs.get(MEASURED, 0.0) > 0,
        **{f"share_{name}": share for name, share in prediction.costs.items()},
        "share_python": prediction.python,
    }
