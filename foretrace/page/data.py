"""A job before and after a scenario in, all that a page shows of them out, as one JSON object.

`view` is what changes with the scenario; `outlook` is about the job as it is and takes longer.
Times are ms of a step unless a name says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.analysis.advise import advise_from
from foretrace.analysis.error.prediction_interval import LEVEL
from foretrace.analysis.evidence.validated_errors import find_row, list_cost_sources, load_table
from foretrace.analysis.explain import explain_from, sum_path_by_cause
from foretrace.analysis.sensitivity import sensitivity_from
from foretrace.analysis.utilisation import utilise
from foretrace.graph.views import lane_names
from foretrace.page.timeline import NAME_WIDTH, SORTS, timeline_data
from foretrace.report.forms import as_keys
from foretrace.report.number_format import NS_PER_MS, ms, percent
from foretrace.report.utilisation import utilisation_keys
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from foretrace.analysis.evidence.validation_scope import Place
    from foretrace.analysis.unchanged.baseline import Baseline, Experiment
    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

MOST_PARTS = 40
"""Parts of a breakdown; the rest is summed up in one row."""
MOST_SEGMENTS = 15
"""Rows of the table of what the critical path consists of."""


def view(experiment: Experiment) -> dict[str, Any]:
    """Return the prediction of a scenario, its reasons, and both timelines.

    Raises
    ------
    TransformError
        As `foretrace.analysis.prediction.predict_from` does.
    """
    why = explain_from(experiment)
    baseline, before = experiment.baseline, experiment.baseline.timeline
    parts = as_keys(why)
    shown = {"as recorded": before}
    if experiment.scenario:
        shown = {"before": before, "after": experiment.after}
    return {
        **as_keys(why.prediction),
        "job": _describe_job(baseline.graph),
        "bound_step_ms": parts["bound_step_ms"],
        "work_saved_ms": parts["work_saved_ms"],
        "work_added_ms": parts["work_added_ms"],
        "limiting_lanes": parts["limiting_lanes"],
        "pace": parts["pace"],
        "parts": {by: _largest(parts[f"{by}s"]) for by in ("cause", "phase", "module")},
        "limits": {label: _in_ms(sum_path_by_cause(each)) for label, each in shown.items()},
        "path": {label: _segments(each) for label, each in shown.items()},
        "timelines": [timeline_data(each, label) for label, each in shown.items()],
        "sorts": list(SORTS),
        "use": utilisation_keys(utilise(baseline.graph, baseline.measured.step_ns)),
        "replay_error_pct": percent(before.step_ns / baseline.measured.step_ns - 1),
        "measured_steps_ms": [ms(ns) for ns in baseline.measured.samples_ns],
        "level_pct": percent(LEVEL),
        "errors_of_pairs": _list_errors(experiment, why.prediction.place),
    }


def outlook(baseline: Baseline) -> dict[str, Any]:
    """Return what to try next, and what each part of the job is worth.

    Raises
    ------
    TransformError
        The recorded step has no work.
    """
    return {
        "advice": as_keys(advise_from(baseline)),
        "sensitivity": as_keys(sensitivity_from(baseline)),
    }


def _describe_job(graph: Graph) -> dict[str, Any]:
    meta = graph.meta
    return {
        "source": meta.source,
        "format": meta.format,
        "devices": list(dict.fromkeys(device.name for device in meta.devices)),
        "processor": (meta.machine or {}).get("cpu"),
        "ranks": len(meta.ranks),
        "framework": meta.framework,
        "batch_size": meta.batch_size,
        "steps": graph.steps,
        "tasks": len(graph.tasks),
    }


def _largest(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts with the most work or path first; the smallest in one row."""
    ordered = sorted(parts, key=lambda part: -max(*part["work_ms"], *part["path_ms"]))
    rest = ordered[MOST_PARTS:]
    if not rest:
        return ordered
    summed: dict[str, Any] = {"part": f"{len(rest)} more"}
    for column in ("work_ms", "path_ms"):
        summed[column] = [round(sum(part[column][at] for part in rest), 6) for at in (0, 1)]
    return [*ordered[:MOST_PARTS], summed]


def _in_ms(times: dict[str, float]) -> dict[str, float]:
    return {name: round(ns / NS_PER_MS, 6) for name, ns in times.items()}


def _segments(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the tasks that take most of the critical path, by name, lane and reason."""
    path, graph = timeline.critical_path, timeline.graph
    names = graph.tasks["name"].to_numpy(object)[path["task"].to_numpy()]
    lanes = lane_names(graph)[path["lane"].to_numpy()]
    length = path["to_ns"] - path["from_ns"]
    by = [names, lanes, path["why"].astype(object)]
    totals = length.groupby(by, sort=True).agg(["sum", "count"])
    totals = totals.sort_values("sum", ascending=False, kind="stable")
    per_step = NS_PER_MS * graph.steps * timeline.steady.cycle
    return [
        {
            "name": short(str(name), NAME_WIDTH),
            "lane": str(lane),
            "why": str(why),
            "ms": round(float(row["sum"]) / per_step, 6),
            "count": int(row["count"]),
        }
        for (name, lane, why), row in totals.head(MOST_SEGMENTS).iterrows()
    ]


def _list_errors(experiment: Experiment, place: Place | None) -> list[dict[str, Any]]:
    """Return for each what-if how far off measured pairs of it were, at such a place."""
    if place is None:
        return []
    table, rows = load_table()[place.on], []
    for name, source in list_cost_sources(experiment.scenario, experiment.changed):
        own = name in table.get(source, {})
        row = find_row(name, source, table, place.workers) or {}
        rows.append(
            {
                "transform": name,
                "hardware": place.on,
                "source": source if own else "rule",
                "pairs": row.get("pairs", 0),
                "median_pct": percent(row["median"]) if row else None,
                "p90_pct": percent(row["p90"]) if row else None,
            }
        )
    return rows
