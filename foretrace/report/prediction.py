"""Text and JSON of predictions, validations and replays; importing this registers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.analysis.prediction import Prediction
from foretrace.analysis.unchanged.identity import Identity
from foretrace.analysis.validation import Validation
from foretrace.report.dispatch import json_keys, text_blocks
from foretrace.report.number_format import MEASURED, duration, ms, number, percent, places, share
from foretrace.report.text_layout import (
    ASIDE,
    BAD,
    CAUTION,
    GOOD,
    TITLE,
    Blocks,
    aside,
    doubt_keys,
    doubt_list,
    fact_table,
    heading,
    measured_fact,
    note_list,
    style_of,
    table,
    text,
)

if TYPE_CHECKING:
    from rich.text import Text

    from foretrace.analysis.unchanged.measured_step import Measured

ANOTHER_SCALE = 0.02
"""Where a replay is further off the measured step than this, its text says so beside the path."""


def measured_keys(measured: Measured) -> dict[str, Any]:
    """Return the JSON keys of a measured step: how long, and where that is known from."""
    return {
        "measured_step_ms": ms(measured.step_ns),
        "measured_by": measured.source,
        "steps_from": measured.steps_from,
    }


@json_keys.register(Identity)
def identity_keys(report: Identity) -> dict[str, Any]:
    """Return the JSON keys of an unchanged replay."""
    return {
        "doubts": doubt_keys(report.doubts),
        **measured_keys(report.measured),
        "replayed_step_ms": ms(report.replayed_ns),
        "error_pct": percent(report.error),
        "host_step_ms": ms(report.host_ns),
        "device_step_ms": ms(report.device_ns),
        "critical_path": _path(report.critical_path),
        "warnings": list(report.warnings),
    }


@text_blocks.register(Identity)
def _identity_blocks(report: Identity) -> Blocks:
    return [
        heading("Replay without any change"),
        *doubt_list(report.doubts),
        fact_table(*identity_facts(report)),
        *identity_path(report),
        *note_list("Warnings", report.warnings, CAUTION),
    ]


def identity_facts(report: Identity) -> list[tuple[str, str, str]]:
    """Return what was measured and what the unchanged replay says, line by line."""
    decimals = places(report.measured.step_ns)
    return [
        measured_fact(report.measured, decimals),
        ("replayed", duration(report.replayed_ns, decimals), f"{report.error:+.2%}"),
        ("host", duration(report.host_ns, decimals), "from step to step, with its waiting"),
        ("device", duration(report.device_ns, decimals), "from step to step, with its waiting"),
    ]


def identity_path(report: Identity) -> Blocks:
    """Return what the step of the unchanged replay consists of."""
    paths = {"replayed": report.critical_path}
    return _paths(paths, report.measured, report.replayed_ns)


@json_keys.register(Prediction)
def _prediction_keys(report: Prediction) -> dict[str, Any]:
    return {
        "scenario": list(report.scenario),
        "doubts": doubt_keys(report.doubts),
        **measured_keys(report.measured),
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
        "evidence": list(report.evidence),
    }


@text_blocks.register(Prediction)
def _prediction_blocks(report: Prediction) -> Blocks:
    decimals = places(report.measured.step_ns)
    low, high = (duration(ns, decimals) for ns in report.interval_ns)
    paths = {"before": report.critical_path_before, "after": report.critical_path_after}
    return [
        heading(" + ".join(report.scenario)),
        *doubt_list(report.doubts),
        fact_table(
            measured_fact(report.measured, decimals),
            (
                "predicted",
                text(duration(report.predicted_ns, decimals), TITLE),
                speedup_text(report),
            ),
            ("interval", low, text(f"to {high} ").append(f"({report.status})", ASIDE)),
        ),
        *_paths(paths, report.measured, report.replayed_before_ns),
        text(f"Cost of the work after: {_shares(report.costs)}"),
        *note_list("Tested by", report.evidence),
        *note_list("Assumes", report.assumptions),
        *note_list("Warnings", report.warnings, CAUTION),
    ]


@json_keys.register(Validation)
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


@text_blocks.register(Validation)
def _validation_blocks(report: Validation) -> Blocks:
    paper = report.null_paper_error
    decimals = places(report.prediction.measured.step_ns)
    inside = text("inside the interval", GOOD)
    return [
        *_prediction_blocks(report.prediction),
        heading("Against the measurement"),
        fact_table(
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


def speedup_text(report: Prediction) -> Text:
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
