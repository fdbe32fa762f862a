"""Text and JSON of advice, explanations and sensitivities; importing this registers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.analysis.advise import Advisory
from foretrace.analysis.explain import Explanation
from foretrace.analysis.sensitivity import Sensitivity
from foretrace.report.dispatch import json_keys, text_blocks
from foretrace.report.number_format import duration, ms, number, places
from foretrace.report.prediction import measured_keys, speedup_text
from foretrace.report.status_marks import MARKS, explain_marks
from foretrace.report.text_layout import (
    CAUTION,
    NO_GAIN,
    Blocks,
    aside,
    change_text,
    doubt_keys,
    doubt_list,
    fact_table,
    gain_text,
    heading,
    measured_fact,
    note_list,
    table,
    text,
)
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from foretrace.analysis.advise import Advice
    from foretrace.analysis.explain import Shift

SHOWN_PARTS = 8
SHOWN_CURVES = 24
LEAST_SHARE = 0.05
"""A cause with less of a step is not named as what limits it."""


@json_keys.register(Advisory)
def _advisory_keys(report: Advisory) -> dict[str, Any]:
    return {
        "doubts": doubt_keys(report.doubts),
        **measured_keys(report.measured),
        "limits": _shares(report.limits),
        "advice": [_advice_keys(each) for each in report.single],
        "combinations": [_advice_keys(each) for each in report.combined],
        "inapplicable": [{"scenario": text, "reason": why} for text, why in report.inapplicable],
        "to_settle": [
            {**each._asdict(), "scenarios": list(each.scenarios)} for each in report.settling
        ],
        "warnings": list(report.warnings),
    }


def _advice_keys(advice: Advice) -> dict[str, Any]:
    return {
        **json_keys(advice.prediction),
        "throughput_gain": round(advice.gain, 6),
        "saves": advice.saves,
        "limits": _shares(advice.limits),
    }


@text_blocks.register(Advisory)
def _advisory_blocks(report: Advisory) -> Blocks:
    decimals = places(report.measured.step_ns)
    faster = [each for each in report.single if each.gain >= 1 + NO_GAIN]
    rest = [each for each in report.single if each.gain < 1 + NO_GAIN]
    assumed = [note for each in report.single for note in each.prediction.assumptions]
    return [
        heading("What to try, best first"),
        *doubt_list(report.doubts),
        fact_table(
            measured_fact(report.measured, decimals),
            ("limited by", "", _limits(report.limits)),
        ),
        *_advice("faster", faster, report, decimals),
        *_advice("together (replayed)", report.combined, report, decimals),
        *_advice("no gain in speed", rest, report, decimals),
        *([text(""), heading("Does not apply")] if report.inapplicable else []),
        table("ll", report.inapplicable),
        *explain_marks(each.prediction.status for each in [*report.single, *report.combined]),
        *note_list("What would settle it", map(str, report.settling)),
        *note_list("Assumes", dict.fromkeys(assumed)),
        *note_list("Warnings", report.warnings, CAUTION),
    ]


def _advice(title: str, advice: Sequence[Advice], report: Advisory, decimals: int) -> Blocks:
    """Return a table with a row for each advice, its own doubts and warnings beside it."""
    if not advice:
        return []
    rows = []
    for each in advice:
        prediction = each.prediction
        star = MARKS[prediction.status]
        low, high = (number(ns, decimals) for ns in prediction.interval_ns)
        rows.append(
            (
                " + ".join(prediction.scenario),
                gain_text(each.gain),
                f"{number(prediction.predicted_ns, decimals)}{star}",
                f"{low} … {high}",
                _remarks(each, report),
            )
        )
    heads = (title, "samples/s", "step, ms", "90 % interval", "then limited by")
    return [text(""), table("lrrrl", rows, heads)]


def _remarks(advice: Advice, report: Advisory) -> Text:
    """Return what limits a job then, and what else there is to know before it is tried."""
    remarks = text(_limits(advice.limits))
    if advice.saves == "memory":
        remarks.append("; needs less memory")
    own = [str(doubt) for doubt in advice.prediction.doubts if doubt not in report.doubts]
    for note in (*own, *advice.prediction.warnings):
        if note in own or "does not fit" in note:
            remarks.append_text(text(f"; {note}", CAUTION))
    return remarks


def _limits(limits: dict[str, float], most: int = 3) -> str:
    """Return the largest causes with their share of a step."""
    shares = [item for item in _shares(limits).items() if item[1] >= LEAST_SHARE][:most]
    return ", ".join(f"{cause} {share:.0%}" for cause, share in shares) or "nothing in particular"


def _shares(limits: dict[str, float]) -> dict[str, float]:
    total = sum(limits.values()) or 1.0
    return {cause: round(ns / total, 4) for cause, ns in limits.items()}


@json_keys.register(Explanation)
def _explanation_keys(report: Explanation) -> dict[str, Any]:
    return {
        **json_keys(report.prediction),
        "bound_step_ms": ms(_scaled(report, report.bound_ns)),
        "work_saved_ms": ms(report.saved_ns),
        "work_added_ms": ms(report.added_ns),
        "limiting_lanes": {"before": report.limits[0], "after": report.limits[1]},
        "pace": dict(zip(("before", "after"), report.paces, strict=True)),
        "causes": [_shift_keys(each) for each in report.causes],
        "phases": [_shift_keys(each) for each in report.phases],
        "modules": [_shift_keys(each) for each in report.modules],
    }


def _shift_keys(shift: Shift) -> dict[str, Any]:
    return {
        "part": shift.part,
        "work_ms": [ms(ns) for ns in shift.work_ns],
        "path_ms": [ms(ns) for ns in shift.path_ns],
    }


@text_blocks.register(Explanation)
def _explanation_blocks(report: Explanation) -> Blocks:
    prediction = report.prediction
    decimals = places(prediction.measured.step_ns)
    return [
        heading(f"Why {' + '.join(prediction.scenario)} gains what it gains"),
        *doubt_list(prediction.doubts),
        fact_table(
            measured_fact(prediction.measured, decimals),
            ("predicted", duration(prediction.predicted_ns, decimals), speedup_text(prediction)),
            (
                "at best",
                duration(_scaled(report, report.bound_ns), decimals),
                "if all changed and added work cost nothing",
            ),
            ("work gone", duration(report.saved_ns, decimals), "of a step, on all lanes together"),
            ("work added", duration(report.added_ns, decimals), ""),
            ("step gained", duration(_gained(prediction), decimals), "of the replayed step"),
            ("pace set by", "", _pace(*report.limits)),
            *_ranks(*report.paces),
        ),
        aside(_verdict(report), ""),
        *(
            _shift_table(title, shifts, decimals)
            for title, shifts in (
                ("cause", report.causes),
                ("phase", report.phases),
                ("module", report.modules),
            )
        ),
        aside("work: of calls and kernels; on path: also the time between them"),
        *note_list("Assumes", prediction.assumptions),
        *note_list("Warnings", prediction.warnings, CAUTION),
    ]


def _gained(prediction: Any) -> float:
    return prediction.replayed_before_ns - prediction.replayed_after_ns


def _ranks(before: str | None, after: str | None) -> list[tuple[str, str, str]]:
    """Say which of several ranks sets the pace, before and after."""
    said = {"before": before, "after": after}
    return [(when, "", pace) for when, pace in said.items() if pace]


def _pace(before: str, after: str) -> str:
    """Say which lanes set the pace."""
    return f"{before}, before and after" if before == after else f"{before}, then by {after}"


def _verdict(report: Explanation) -> str:
    """Say in a sentence where the work that went has gone."""
    hidden = report.saved_ns - report.added_ns - _gained(report.prediction)
    if report.saved_ns <= 0:
        return "No work goes away: what changes is added, or only waited for."
    off_path = max(0.0, hidden) / report.saved_ns
    after = max(report.causes, key=lambda shift: shift.path_ns[1])
    return (
        f"{off_path:.0%} of the work that goes lay beside the critical path, or other work takes "
        f"its place there; now {after.part} sets the pace."
    )


def _shift_table(title: str, shifts: Sequence[Shift], decimals: int) -> Any:
    """Return the parts that differ or matter most: work and critical path, before and after."""
    weight = sorted(shifts, key=lambda each: -max(abs(each.moved_ns), *each.path_ns))
    chosen = set(map(id, weight[:SHOWN_PARTS]))
    rows: list[tuple[str | Text, ...]] = [
        (
            short(each.part, 60),
            *(number(ns, decimals) for ns in (*each.work_ns, *each.path_ns)),
            change_text(each.moved_ns, decimals),
        )
        for each in shifts
        if id(each) in chosen
    ]
    heads = (f"{title}, ms per step", "work", "after", "on path", "after", "moved")
    return table("lrrrrr", rows, heads)


def _scaled(report: Explanation, replayed_ns: float) -> float:
    """Return a replayed time as predictions are given: on the scale of the measured step."""
    prediction = report.prediction
    return prediction.measured.step_ns * replayed_ns / prediction.replayed_before_ns


@json_keys.register(Sensitivity)
def _sensitivity_keys(report: Sensitivity) -> dict[str, Any]:
    return {
        "doubts": doubt_keys(report.doubts),
        **measured_keys(report.measured),
        "less_time_percent": list(report.percents),
        "parts": [
            {
                "of": each.of,
                "part": each.part,
                "work_ms": ms(each.work_ns),
                "step_ms": [ms(ns) for ns in each.step_ns],
            }
            for each in report.curves
        ],
    }


@text_blocks.register(Sensitivity)
def _sensitivity_blocks(report: Sensitivity) -> Blocks:
    decimals = places(report.measured.step_ns)
    shown = report.curves[:SHOWN_CURVES]
    hidden = len(report.curves) - len(shown)
    rows = [
        (
            short(f"{each.of}: {each.part}", 60),
            number(each.work_ns, decimals),
            *(number(ns, decimals) for ns in each.step_ns),
        )
        for each in shown
    ]
    heads = ("part", "work, ms", *(f"-{percent:g} %" for percent in report.percents))
    return [
        heading("Step time if one part took less time, in ms"),
        *doubt_list(report.doubts),
        fact_table(measured_fact(report.measured, decimals)),
        table("l" + "r" * (len(heads) - 1), rows, heads),
        aside("work of the host: its calls and the time between them"),
        *([aside(f"and {hidden} more parts with less to gain")] if hidden else []),
    ]
