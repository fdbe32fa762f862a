"""Text and JSON of advice, explanations and sensitivities; importing this registers them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from foretrace.advise import Advisory
from foretrace.explain import Explanation
from foretrace.formats import NS_PER_MS, bullets, measured, ms, short, time
from foretrace.report import keys, lines
from foretrace.sensitivity import Sensitivity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.advise import Advice
    from foretrace.explain import Shift

NO_GAIN = 0.005
"""A gain below half a percent is none to speak of."""
SHOWN_PARTS = 8
SHOWN_CURVES = 24
_WIDTH = 44  # of the column of names
LEAST_SHARE = 0.05
"""A cause with less of a step is not named as what limits it."""


@keys.register(Advisory)
def _advisory_keys(report: Advisory) -> dict[str, Any]:
    return {
        "measured_step_ms": ms(report.measured.step_ns),
        "measured_by": report.measured.source,
        "limits": _shares(report.limits),
        "advice": [_advice_keys(each) for each in report.single],
        "combinations": [_advice_keys(each) for each in report.combined],
        "inapplicable": [{"scenario": text, "reason": why} for text, why in report.inapplicable],
        "warnings": list(report.warnings),
    }


def _advice_keys(advice: Advice) -> dict[str, Any]:
    return {
        **keys(advice.prediction),
        "throughput_gain": round(advice.gain, 6),
        "saves": advice.saves,
        "limits": _shares(advice.limits),
    }


@lines.register(Advisory)
def _advisory_lines(report: Advisory) -> list[str]:
    every = [*report.single, *report.combined]
    status = {each.prediction.status for each in every}
    text = ["What to try, best first", measured(report.measured)]
    text += [f"  limited by  {_limits(report.limits)}", ""]
    faster = [each for each in report.single if each.gain >= 1 + NO_GAIN]
    text += _table("faster", faster)
    text += _table("together (replayed)", report.combined)
    rest = [each for each in report.single if each.gain < 1 + NO_GAIN]
    text += _table("no gain in speed", rest)
    if report.inapplicable:
        text += ["Does not apply"]
        for name, why in report.inapplicable:
            first, *more = textwrap.wrap(why, 100)
            text += [f"  {name:<32} {first}", *(f"  {'':<32} {line}" for line in more)]
    if "validated" in status:
        text += ["* compared with measured pairs; the others are unvalidated"]
    elif every:
        text += ["All of these are unvalidated"]
    assumed = [note for each in report.single for note in each.prediction.assumptions]
    text += bullets("Assumes", dict.fromkeys(assumed))
    return text + bullets("Warnings", report.warnings)


def _table(title: str, advice: Sequence[Advice]) -> list[str]:
    """Return one line per advice; its own warnings follow it."""
    if not advice:
        return []
    heads = f"{'samples/s':>9} {'step, ms':>10}  {'90 % interval':<20} then limited by"
    text = [f"{title:<{_WIDTH}} {heads}"]
    for each in advice:
        found = each.prediction
        name = " + ".join(found.scenario)
        low, high = found.interval_ns
        star = "*" if found.status == "validated" else " "
        numbers = (
            f"{each.gain:8.2f}x {found.predicted_ns / NS_PER_MS:10.2f}{star} "
            f"{f'{low / NS_PER_MS:.2f} … {high / NS_PER_MS:.2f}':<20} {_limits(each.limits)}"
        )
        if len(name) > _WIDTH - 2:
            text.append(f"  {name}")
            name = ""
        text.append(f"  {name:<{_WIDTH - 2}} {numbers}")
        if each.saves == "memory":
            text.append("      pays with time for memory")
        text += [f"      ! {short(note, 100)}" for note in found.warnings if "does not fit" in note]
    return [*text, ""]


def _limits(limits: dict[str, float], most: int = 3) -> str:
    """Return the largest causes with their share of a step."""
    shares = [item for item in _shares(limits).items() if item[1] >= LEAST_SHARE][:most]
    return ", ".join(f"{cause} {share:.0%}" for cause, share in shares) or "nothing in particular"


def _shares(limits: dict[str, float]) -> dict[str, float]:
    total = sum(limits.values()) or 1.0
    return {cause: round(ns / total, 4) for cause, ns in limits.items()}


@keys.register(Explanation)
def _explanation_keys(report: Explanation) -> dict[str, Any]:
    return {
        **keys(report.prediction),
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


@lines.register(Explanation)
def _explanation_lines(report: Explanation) -> list[str]:
    found = report.prediction
    gained = found.replayed_before_ns - found.replayed_after_ns
    bound = _scaled(report, report.bound_ns)
    return [
        f"Why {' + '.join(found.scenario)} gains what it gains",
        measured(found.measured),
        f"  predicted   {time(found.predicted_ns)}   {found.speedup:.2f}x as fast",
        f"  at best     {time(bound)}   if all changed and added work cost nothing",
        f"  work gone   {time(report.saved_ns)}   of a step, on all lanes together",
        f"  work added  {time(report.added_ns)}",
        f"  step gained {time(gained)}   of the replayed step",
        f"  pace set by {_pace(*report.limits)}",
        *_ranks(*report.paces),
        _verdict(report),
        *_shift_table("cause", report.causes),
        *_shift_table("phase", report.phases),
        *_shift_table("module", report.modules),
        *bullets("Assumes", found.assumptions),
        *bullets("Warnings", found.warnings),
    ]


def _ranks(before: str | None, after: str | None) -> list[str]:
    """Say which of several ranks sets the pace, before and after."""
    said = {"before": before, "after": after}
    return [f"  {when:<11} {pace}" for when, pace in said.items() if pace]


def _pace(before: str, after: str) -> str:
    """Say which lanes set the pace."""
    return f"{before}, before and after" if before == after else f"{before}, then by {after}"


def _verdict(report: Explanation) -> str:
    """Say in a sentence where the work that went has gone."""
    gained = report.prediction.replayed_before_ns - report.prediction.replayed_after_ns
    hidden = report.saved_ns - report.added_ns - gained
    if report.saved_ns <= 0:
        return "  No work goes away: what changes is added, or only waited for."
    off_path = max(0.0, hidden) / report.saved_ns
    after = max(report.causes, key=lambda shift: shift.path_ns[1])
    return (
        f"  {off_path:.0%} of the work that goes lay beside the critical path, or other work takes "
        f"its place there; now {after.part} sets the pace."
    )


def _shift_table(title: str, shifts: Sequence[Shift]) -> list[str]:
    """Return the parts that differ or matter most: work and critical path, before and after."""
    weight = sorted(shifts, key=lambda each: -max(abs(each.moved_ns), *each.path_ns))
    chosen = set(map(id, weight[:SHOWN_PARTS]))
    heads = " ".join(f"{head:>10}" for head in ("work", "after", "on path", "after", "moved"))
    text = [f"{f'{title}, ms per step':<34} {heads}"]
    for each in shifts:
        if id(each) in chosen:
            cells = (*each.work_ns, *each.path_ns)
            numbers = " ".join(f"{ns / NS_PER_MS:10.2f}" for ns in cells)
            moved = f"{each.moved_ns / NS_PER_MS:+10.2f}"
            text.append(f"  {short(each.part, 32):<32} {numbers} {moved}")
    return text


def _scaled(report: Explanation, replayed_ns: float) -> float:
    """Return a replayed time as predictions are given: on the scale of the measured step."""
    found = report.prediction
    return found.measured.step_ns * replayed_ns / found.replayed_before_ns


@keys.register(Sensitivity)
def _sensitivity_keys(report: Sensitivity) -> dict[str, Any]:
    return {
        "measured_step_ms": ms(report.measured.step_ns),
        "measured_by": report.measured.source,
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


@lines.register(Sensitivity)
def _sensitivity_lines(report: Sensitivity) -> list[str]:
    percents = " ".join(f"{f'-{percent:g} %':>9}" for percent in report.percents)
    text = [
        "Step time if one part took less time, in ms",
        measured(report.measured),
        f"{'part':<44} {'work, ms':>9} {percents}",
    ]
    shown = report.curves[:SHOWN_CURVES]
    for each in shown:
        steps = " ".join(f"{ns / NS_PER_MS:9.2f}" for ns in each.step_ns)
        label = f"{each.of}: {each.part}"
        text.append(f"  {short(label, 42):<42} {each.work_ns / NS_PER_MS:9.2f} {steps}")
    if len(report.curves) > len(shown):
        text.append(f"  and {len(report.curves) - len(shown)} more parts with less to gain")
    return text
