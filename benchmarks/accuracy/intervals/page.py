"""Observations and scales in, the section of the accuracy page on intervals out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.accuracy.intervals.interval_coverage import (
    Judged,
    cover,
    leave_out,
    leave_out_what_ifs,
)
from benchmarks.accuracy.intervals.observations import PLAIN
from benchmarks.accuracy.intervals.scale_fit import FEWEST, FORMS
from benchmarks.accuracy.markdown import table as markdown_table
from foretrace.analysis.error.difficulty import Difficulty
from foretrace.analysis.error.error_scale import ARCHITECTURES, PAIRS, WIDEST, read_scale
from foretrace.analysis.error.prediction_interval import LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.accuracy.intervals.observations import Observation
    from foretrace.analysis.error.error_scale import ErrorScale

BASIS = {
    ARCHITECTURES: f"an answer about a new architecture is held in at least {LEVEL:.0%}",
    PAIRS: f"fewer than {FEWEST} architectures: as if pairs were drawn one by one",
    WIDEST: f"too few pairs for {LEVEL:.0%}: the largest error known",
}
COLUMNS = ("answers", "hold", "mean half width", "best constant")
EXPLAINED = f"""\
An interval means to hold the truth in {LEVEL:.0%} of the cases.
Its half width is what is expected of so difficult an answer, times a conformal quantile \
([how it works](how-it-works.md#intervals)).
Here each was made without any pair of the architecture that it is judged on; held-out models are \
in none.
Widths are |ln| of truth over prediction: 0.10 is 10 %, up or down.
*Best constant* is the smallest one width for all of a line that {LEVEL:.0%} of it hold with; it \
knows the errors that it is judged on."""
COVERS = """\
What an answer adds to its interval by itself (other readings of a recording, constants without a \
source) is not in these figures; it only widens."""


def intervals(observations: Sequence[Observation], table: Mapping[str, Any]) -> list[str]:
    """Return the section; *table* has the scales that answers use."""
    if not observations:
        return []
    judged = leave_out(observations)
    return [
        "## Intervals",
        "",
        *EXPLAINED.splitlines(),
        COVERS,
        "",
        *_by("pairs", judged, _name_evidence),
        *_by("what-if", judged, _name_question),
        *_forms([each for each in observations if each.on == "cpu"]),
        *_scales({on: read_scale(of) for on, of in table.items()}),
    ]


def _by(title: str, judged: Sequence[Judged], name: Callable[[Observation], str]) -> list[str]:
    kinds: dict[str, list[Judged]] = {}
    for each in judged:
        kinds.setdefault(name(each.observation), []).append(each)
    return [
        *markdown_table((title, *COLUMNS), [_line(kind, kinds[kind]) for kind in sorted(kinds)]),
        "",
    ]


def _line(kind: str, judged: Sequence[Judged]) -> list[str]:
    count, holds, width, constant = cover(judged)
    return [kind, str(count), f"{holds:.0%}", f"{width:.3f}", f"{constant:.3f}"]


def _name_evidence(each: Observation) -> str:
    known = "held out" if each.held_out else "tuned on" if each.tuned else "not tuned on"
    plain = f", {PLAIN}" * (each.source == PLAIN)
    return f"{each.on}, {each.way}{plain}, {known}"


def _name_question(each: Observation) -> str:
    return f"{each.on}, {' + '.join(each.what_ifs)}, {each.way}"


def _forms(observations: Sequence[Observation]) -> list[str]:
    """Return how scales compare, on CPUs: on GPUs there are too few architectures for any."""
    if not observations:
        return []
    lines = [_line(name, leave_out(observations, form)) for name, form in FORMS.items()]
    untested = _line("as if no pair had tested the what-if", leave_out_what_ifs(observations))
    return [
        "Scales that were tried on CPUs; the last is used.",
        "What does not help gets no weight, so that it is the one before where all of it does not.",
        "",
        *markdown_table(("scale", *COLUMNS), [*lines, untested]),
        "",
    ]


def _scales(scales: Mapping[str, ErrorScale]) -> list[str]:
    """Return what was found, and what it rests on."""
    columns = ("", "base", *Difficulty._fields, "quantile", "untested", "architectures", "pairs")
    lines = []
    for on, scale in scales.items():
        figures = [*(scale.base, *scale.slopes, scale.quantile, scale.untested)]
        counts = [str(scale.architectures), str(scale.pairs)]
        lines.append([on, *(f"{figure:.4g}" for figure in figures), *counts])
    return [
        "The error to expect is the base and a share of each covariate: of the work that rules",
        "gave and that was timed, of |ln| of the predicted change, of Python time.",
        "The quantile times that is the half width, of an untested what-if at least *untested*.",
        "",
        *markdown_table(columns, lines),
        "",
        *(f"- {on}: {BASIS[scale.basis]}.{_say_factors(scale)}" for on, scale in scales.items()),
        "",
    ]


def _say_factors(scale: ErrorScale) -> str:
    wider = ", ".join(f"{name} × {factor:g}" for name, factor in scale.factors.items())
    return f" Wider than their difficulty tells: {wider}." if wider else ""
