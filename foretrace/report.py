"""A result in, text for a terminal or one JSON object out. Nothing is computed here.

Times are ms, errors are signed percent of the measured value, and unknown is null, never 0.
"""

from __future__ import annotations

import json
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from foretrace.catalogue import Catalogue
from foretrace.formats import NS_PER_MS, bullets, measured, ms, percent, short, size, time
from foretrace.pace import pace_setter
from foretrace.predict import Identity, Prediction
from foretrace.summary import Steps, Summary
from foretrace.validate import Validation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def as_json(report: object) -> str:
    """Return *report* as one JSON object on one line."""
    return json.dumps(keys(report), allow_nan=False) + "\n"


def as_text(report: object) -> str:
    """Return *report* as lines of plain text; what a terminal might obey is shown as "�"."""
    return "\n".join(_printable(line.rstrip()) for line in lines(report)) + "\n"


def _printable(line: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)


@singledispatch
def keys(report: object) -> dict[str, Any]:
    """Return the JSON keys of *report*."""
    raise TypeError(f"no JSON form for {type(report).__name__}")


@singledispatch
def lines(report: object) -> list[str]:
    """Return the text of *report*, line by line."""
    raise TypeError(f"no text form for {type(report).__name__}")


@keys.register
def _identity_keys(report: Identity) -> dict[str, Any]:
    return {
        "measured_step_ms": ms(report.measured.step_ns),
        "measured_by": report.measured.source,
        "replayed_step_ms": ms(report.replayed_ns),
        "error_pct": percent(report.error),
        "host_step_ms": ms(report.host_ns),
        "device_step_ms": ms(report.device_ns),
        "critical_path": _path(report.critical_path),
        "warnings": list(report.warnings),
    }


@lines.register
def _identity_lines(report: Identity) -> list[str]:
    return [
        "Replay without any change",
        measured(report.measured),
        f"  replayed    {time(report.replayed_ns)}   {report.error:+.2%}",
        f"  host        {time(report.host_ns)}   of a step",
        f"  device      {time(report.device_ns)}   of a step",
        *_paths("Critical path, ms per step", ["replayed"], [report.critical_path]),
        *bullets("Warnings", report.warnings),
    ]


@keys.register
def _prediction_keys(report: Prediction) -> dict[str, Any]:
    return {
        "scenario": list(report.scenario),
        "measured_step_ms": ms(report.measured.step_ns),
        "measured_by": report.measured.source,
        "baseline_step_ms": ms(report.measured.step_ns),
        "replayed_step_ms": ms(report.replayed_before_ns),
        "predicted_step_ms": ms(report.predicted_ns),
        "speedup": round(report.speedup, 6),
        "interval_ms": [ms(end) for end in report.interval_ns],
        "critical_path": {
            "before": _path(report.critical_path_before),
            "after": _path(report.critical_path_after),
        },
        "cost_sources": {name: round(share, 6) for name, share in report.costs.items()},
        "samples_per_step": [report.samples_before, report.samples_after],
        "samples_ratio": round(report.samples, 6),
        "assumptions": list(report.assumptions),
        "warnings": list(report.warnings),
        "status": report.status,
    }


@lines.register
def _prediction_lines(report: Prediction) -> list[str]:
    low, high = report.interval_ns
    return [
        " + ".join(report.scenario),
        measured(report.measured),
        f"  predicted   {time(report.predicted_ns)}   {_gain(report)}",
        f"  interval    {time(low)} … {high / NS_PER_MS:.2f} ms ({report.status})",
        *_paths(
            "Critical path, ms per step",
            ["before", "after"],
            [report.critical_path_before, report.critical_path_after],
        ),
        f"Cost of the work after: {_shares(report.costs)}",
        *bullets("Assumes", report.assumptions),
        *bullets("Warnings", report.warnings),
    ]


@keys.register
def _validation_keys(report: Validation) -> dict[str, Any]:
    paper = report.null_paper_error
    return {
        **_prediction_keys(report.prediction),
        "measured_after_ms": ms(report.measured_after_ns),
        "measured_after_by": report.measured_after_source,
        "error_pct": percent(report.error),
        "null_no_change_error_pct": percent(report.null_no_change_error),
        "null_paper_error_pct": None if paper is None else percent(paper),
        "inside_interval": report.is_inside_interval,
    }


@lines.register
def _validation_lines(report: Validation) -> list[str]:
    paper = report.null_paper_error
    paper_text = "has no constants for this" if paper is None else f"{paper:+.1%}"
    inside = "inside" if report.is_inside_interval else "outside"
    return [
        *_prediction_lines(report.prediction),
        "Against the measurement",
        f"  measured    {time(report.measured_after_ns)}   {report.measured_after_source}",
        f"  error       {report.error:+10.1%}   {inside} the interval",
        f"  no change   {report.null_no_change_error:+10.1%}   error of the null model",
        f"  paper       {paper_text:>10}   error of Daydream's constants",
    ]


@keys.register
def _summary_keys(report: Summary) -> dict[str, Any]:
    steps = report.steps
    return {
        "source": report.source,
        "format": report.format,
        "devices": list(report.devices),
        "ranks": list(report.ranks),
        "framework": report.framework,
        "batch_size": report.batch_size,
        "span_ms": ms(report.span_ns),
        "events": report.events,
        "device_busy_ms": ms(report.busy_ns),
        "device_classes_ms": {name: ms(ns) for name, ns in report.classes_ns.items()},
        "kernels": [
            {"name": name, "ms": ms(ns), "count": count}
            for name, (ns, count) in report.kernels_ns.items()
        ],
        "steps": steps.count if steps else None,
        "steps_problem": report.steps_problem,
        "phases_ms": {
            name: {"host": ms(host), "device": ms(device)}
            for name, (host, device) in (steps.phases_ns.items() if steps else ())
        },
        "memory_gb": _memory_keys(steps) if steps else None,
        **_pace_keys(steps),
        **{key: value for key, value in _step_keys(report).items() if key != "warnings"},
        "warnings": [*report.warnings, *(steps.identity.warnings if steps else ())],
    }


def _pace_keys(steps: Steps | None) -> dict[str, Any]:
    """Return who of several ranks waits for whom; nothing where there is one rank."""
    if steps is None or not steps.paces:
        return {}
    each = [
        {
            "rank": one.rank,
            "begins_ms": ms(one.begins_ns),
            "waits_ms": ms(one.waits_ns),
            "collectives": one.meets,
            "last_at": one.last_at,
            "awaited_ms": ms(one.awaited_ns),
            "path_ms": ms(one.path_ns),
        }
        for one in steps.paces
    ]
    return {"pace": pace_setter(steps.paces), "pace_of_ranks": each}


def _pace_lines(steps: Steps) -> list[str]:
    if not steps.paces:
        return []
    heads = ("begins", "waits", "awaited", "last at")
    text = [f"{'Ranks, ms per step':<24}" + " ".join(f"{head:>12}" for head in heads)]
    for one in steps.paces:
        times = " ".join(
            f"{ns / NS_PER_MS:12.2f}" for ns in (one.begins_ns, one.waits_ns, one.awaited_ns)
        )
        text.append(f"  rank {one.rank:<17}{times} {one.last_at:>6} of {one.meets}")
    return [*text, f"  {pace_setter(steps.paces)}"]


def _memory_keys(steps: Steps) -> dict[str, Any] | None:
    if steps.memory is None:
        return None
    all_ = {"peak": steps.memory.bytes, "device": steps.memory_bytes, **vars(steps.memory)}
    return {name: round(s / 1e9, 6) if isinstance(s, float) else s for name, s in all_.items()}


def _memory_line(steps: Steps) -> list[str]:
    memory = steps.memory
    if memory is None:
        return []
    room = "" if steps.memory_bytes is None else f" of {size(steps.memory_bytes)}"
    kinds = ("parameters", "gradients", "optimizer_state", "activations")
    parts = ", ".join(f"{kind.replace('_', ' ')} {size(getattr(memory, kind))}" for kind in kinds)
    return [f"  memory      {size(memory.bytes):>13}{room}   {parts} ({memory.source})"]


def _step_keys(report: Summary) -> dict[str, Any]:
    if report.steps:
        return _identity_keys(report.steps.identity)
    return {"measured_step_ms": None, "replayed_step_ms": None, "error_pct": None}


@lines.register
def _summary_lines(report: Summary) -> list[str]:
    devices = ", ".join(dict.fromkeys(report.devices)) or "no accelerator named"
    counts = ", ".join(f"{count:,} {kind}" for kind, count in report.events.items())
    text = [
        f"{report.source} ({report.format})",
        f"  device      {devices}",
        f"  ranks       {', '.join(map(str, report.ranks))}",
        f"  recorded    {time(report.span_ns)}   {counts or 'nothing'}",
    ]
    if report.framework:
        text.append(f"  framework   {report.framework}")
    text += _summary_steps(report)
    if report.busy_ns:
        text += ["Device time, whole recording"]
        text += _table((name, ns, ns / report.busy_ns) for name, ns in report.classes_ns.items())
        text += ["Longest kernels, whole recording"]
        text += [
            f"  {ns / NS_PER_MS:10.2f} ms {count:7,} x  {short(name)}"
            for name, (ns, count) in report.kernels_ns.items()
        ]
    return text + bullets("Warnings", _summary_keys(report)["warnings"])


def _summary_steps(report: Summary) -> list[str]:
    steps = report.steps
    if steps is None:
        return [f"  steps       none: {report.steps_problem}"]
    text = [f"  steps       {steps.count:>10}", *_identity_lines(steps.identity)[1:5]]
    text += _memory_line(steps)
    text += ["Work per step by phase, ms                 host    device"]
    text += [
        f"  {name:<30} {host / NS_PER_MS:14.2f} {device / NS_PER_MS:9.2f}"
        for name, (host, device) in steps.phases_ns.items()
    ]
    text += _paths("Critical path, ms per step", ["replayed"], [steps.identity.critical_path])
    return text + _pace_lines(steps)


@keys.register
def _catalogue_keys(report: Catalogue) -> dict[str, Any]:
    return {
        "transforms": [
            {
                "name": name,
                "parameters": parameters,
                "effect": effect,
                "status": {each: report.status(name, each) for each in ("gpu", "cpu")},
                "pairs": report.pairs[name],
            }
            for name, (parameters, effect) in report.transforms.items()
        ]
    }


@lines.register
def _catalogue_lines(report: Catalogue) -> list[str]:
    return [
        line
        for name, (parameters, effect) in report.transforms.items()
        for line in (f"{name}({parameters})", f"    {effect}", f"    {_tested(report.pairs[name])}")
    ]


def _tested(pairs: dict[str, dict[str, int]]) -> str:
    """Say which pairs tested a transform, as in ``validated: gpu by 5 pairs; unvalidated: cpu``."""
    known = [f"{name} by {max(by.values())} pairs" for name, by in pairs.items()]
    unknown = [name for name in ("gpu", "cpu") if name not in pairs]
    parts = {"validated": known, "unvalidated": unknown}
    return "; ".join(f"{word}: {', '.join(found)}" for word, found in parts.items() if found)


def _gain(report: Prediction) -> str:
    if abs(report.speedup - 1) < 0.005:  # noqa: PLR2004  # half a percent is no gain to speak of
        return "no gain"
    of = "" if report.samples == 1 else " in samples per second"
    return f"{report.speedup:.2f}x as fast{of}"


def _paths(title: str, labels: Sequence[str], paths: Sequence[dict[str, float]]) -> list[str]:
    """Return a table with a row per cause and a column per path."""
    causes = dict.fromkeys(cause for path in paths for cause in path)
    text = [f"{title:<32} " + " ".join(f"{label:>12}" for label in labels)]
    for cause in causes:
        cells = " ".join(f"{path.get(cause, 0) / NS_PER_MS:12.2f}" for path in paths)
        text.append(f"  {cause:<30} {cells}")
    return text


def _table(rows: Iterable[tuple[str, float, float]]) -> list[str]:
    return [f"  {name:<30} {ns / NS_PER_MS:12.2f} ms {share:6.1%}" for name, ns, share in rows]


def _shares(costs: dict[str, float]) -> str:
    ordered = sorted(costs.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{share:.1%} {name}" for name, share in ordered)


def _path(path: dict[str, float]) -> dict[str, float | None]:
    return {cause: ms(ns) for cause, ns in path.items()}
