"""A result in, text for people or one JSON object out. Nothing is computed here.

Times are ms, errors are signed percent of the measured value, and unknown is null, never 0.
"""

from __future__ import annotations

import json
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from foretrace.analysis.identity import Identity
from foretrace.analysis.prediction import Prediction
from foretrace.analysis.validation import Validation
from foretrace.analysis.whatif_catalog import Catalog, Entry
from foretrace.report.number_format import MEASURED, duration, ms, number, percent, places, share
from foretrace.report.text_layout import (
    ASIDE,
    BAD,
    CAUTION,
    GOOD,
    TITLE,
    Blocks,
    aside,
    facts,
    heading,
    measured,
    notes,
    rendered,
    style_of,
    table,
    text,
)

if TYPE_CHECKING:
    from rich.text import Text

    from foretrace.analysis.baseline import Measured

ANOTHER_SCALE = 0.02
"""Where a replay is further off the measured step than this, its text says so beside the path."""


def as_json(report: object) -> str:
    """Return *report* as one JSON object on one line."""
    return json.dumps(keys(report), allow_nan=False) + "\n"


def as_text(report: object, *, terminal: bool = False) -> str:
    """Return *report* as text: plain lines, or coloured and broken as the *terminal* is wide."""
    return rendered(blocks(report), terminal=terminal)


@singledispatch
def keys(report: object) -> dict[str, Any]:
    """Return the JSON keys of *report*."""
    raise TypeError(f"no JSON form for {type(report).__name__}")


@singledispatch
def blocks(report: object) -> Blocks:
    """Return the parts of the text of *report*, each with lines of its own."""
    raise TypeError(f"no text form for {type(report).__name__}")


@keys.register
def identity_keys(report: Identity) -> dict[str, Any]:
    """Return the JSON keys of an unchanged replay."""
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


@blocks.register
def _identity_blocks(report: Identity) -> Blocks:
    return [
        heading("Replay without any change"),
        facts(*identity_facts(report)),
        *identity_path(report),
        *notes("Warnings", report.warnings, CAUTION),
    ]


def identity_facts(report: Identity) -> list[tuple[str, str, str]]:
    """Return what was measured and what the unchanged replay says, line by line."""
    decimals = places(report.measured.step_ns)
    return [
        measured(report.measured, decimals),
        ("replayed", duration(report.replayed_ns, decimals), f"{report.error:+.2%}"),
        ("host", duration(report.host_ns, decimals), "from step to step, with its waiting"),
        ("device", duration(report.device_ns, decimals), "from step to step, with its waiting"),
    ]


def identity_path(report: Identity) -> Blocks:
    """Return what the step of the unchanged replay consists of."""
    paths = {"replayed": report.critical_path}
    return _paths(paths, report.measured, report.replayed_ns)


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
        "cost_sources": {name: round(part, 6) for name, part in report.costs.items()},
        "samples_per_step": [report.samples_before, report.samples_after],
        "samples_ratio": round(report.samples, 6),
        "assumptions": list(report.assumptions),
        "warnings": list(report.warnings),
        "status": report.status,
    }


@blocks.register
def _prediction_blocks(report: Prediction) -> Blocks:
    decimals = places(report.measured.step_ns)
    low, high = (duration(ns, decimals) for ns in report.interval_ns)
    paths = {"before": report.critical_path_before, "after": report.critical_path_after}
    return [
        heading(" + ".join(report.scenario)),
        facts(
            measured(report.measured, decimals),
            ("predicted", text(duration(report.predicted_ns, decimals), TITLE), gain(report)),
            ("interval", low, text(f"to {high} ").append(f"({report.status})", ASIDE)),
        ),
        *_paths(paths, report.measured, report.replayed_before_ns),
        text(f"Cost of the work after: {_shares(report.costs)}"),
        *notes("Assumes", report.assumptions),
        *notes("Warnings", report.warnings, CAUTION),
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


@blocks.register
def _validation_blocks(report: Validation) -> Blocks:
    paper = report.null_paper_error
    decimals = places(report.prediction.measured.step_ns)
    inside = text("inside the interval", GOOD)
    return [
        *_prediction_blocks(report.prediction),
        heading("Against the measurement"),
        facts(
            (
                "measured",
                duration(report.measured_after_ns, decimals),
                MEASURED.get(report.measured_after_source, report.measured_after_source),
            ),
            (
                "error",
                f"{report.error:+.1%}",
                inside if report.is_inside_interval else text("outside the interval", BAD),
            ),
            ("no change", f"{report.null_no_change_error:+.1%}", "error of the null model"),
            ("paper", "unknown", "Daydream has no constants for this")
            if paper is None
            else ("paper", f"{paper:+.1%}", "error of Daydream's constants"),
        ),
    ]


@keys.register
def _catalog_keys(report: Catalog) -> dict[str, Any]:
    return {"transforms": [_listed_keys(entry) for entry in report.entries]}


@keys.register
def _entry_keys(entry: Entry) -> dict[str, Any]:
    return {**_listed_keys(entry), "description": entry.description}


def _listed_keys(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "parameters": entry.parameters,
        "effect": entry.effect,
        "status": {hardware: entry.status(hardware) for hardware in ("gpu", "cpu")},
        "pairs": entry.pairs,
        "where": list(entry.where),
    }


@blocks.register
def _catalog_blocks(report: Catalog) -> Blocks:
    rows = [(each.name, ", ".join(each.pairs) or "-", each.effect) for each in report.entries]
    return [
        table("lll", rows, ("What-if", "validated on", "what it does")),
        text("foretrace transforms NAME shows one in full, with its parameters", ASIDE),
    ]


@blocks.register
def _entry_blocks(entry: Entry) -> Blocks:
    pairs = [f"{name} by {max(by.values())} pairs" for name, by in entry.pairs.items()]
    lines = entry.description.splitlines() or [""]
    is_head = [set(line) == {"-"} for line in [*lines[1:], ""]]
    return [
        heading(f"{entry.name}({entry.parameters})"),
        *(
            heading(line) if head else text(line)
            for line, head in zip(lines, is_head, strict=True)
            if set(line) != {"-"}
        ),
        text(""),
        text(f"Validated: {', '.join(pairs) or 'by no measured pair'}"),
        *notes("Only in these settings", entry.where),
    ]


def gain(report: Prediction) -> Text:
    """Say how many times as fast a prediction is."""
    if not style_of(report.speedup):
        return text("no gain")
    of = "" if report.samples == 1 else " in samples per second"
    return text(f"{report.speedup:.2f}x as fast{of}", style_of(report.speedup))


def _paths(paths: dict[str, dict[str, float]], step: Measured, replayed_ns: float) -> Blocks:
    """Return a table with a row per cause and a column per path."""
    decimals = places(step.step_ns)
    causes = dict.fromkeys(cause for path in paths.values() for cause in path)
    rows = [
        (cause, *(number(path.get(cause, 0), decimals) for path in paths.values()))
        for cause in causes
    ]
    heads = ("Critical path, ms per step", *paths)
    return [table("l" + "r" * len(paths), rows, heads), *_scale(step, replayed_ns)]


def _scale(step: Measured, replayed_ns: float) -> Blocks:
    """Say by how much the columns of a path miss the measured step, where that shows."""
    off = replayed_ns / step.step_ns - 1
    if abs(off) <= ANOTHER_SCALE:
        return []
    return [aside(f"adds up to the step as replayed, {off:+.1%} off the measured one")]


def _shares(costs: dict[str, float]) -> str:
    ordered = sorted(costs.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{share(part)} {name}" for name, part in ordered)


def _path(path: dict[str, float]) -> dict[str, float | None]:
    return {cause: ms(ns) for cause, ns in path.items()}
