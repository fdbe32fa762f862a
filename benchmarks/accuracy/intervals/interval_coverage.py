"""Observations in, how often intervals hold that were made without their architecture out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.accuracy.intervals.scale_fit import CHOSEN, fit_scale
from foretrace.analysis.error.prediction_interval import LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.accuracy.intervals.observations import Observation
    from benchmarks.accuracy.intervals.scale_fit import Form
    from foretrace.analysis.error.error_scale import ErrorScale


class Judged(NamedTuple):
    """An observation and half the width of its interval, as |ln|."""

    observation: Observation
    half_width: float

    @property
    def holds(self) -> bool:
        """Whether the interval holds the truth."""
        return abs(self.observation.error) <= self.half_width


class Coverage(NamedTuple):
    """Of ``answers`` the share whose interval ``holds``, and their mean half ``width``, as |ln|.

    ``constant`` is the least half width that `LEVEL` of them hold with, were all of one width.
    """

    answers: int
    holds: float
    width: float
    constant: float


def leave_out(observations: Sequence[Observation], form: Form = CHOSEN) -> list[Judged]:
    """Judge each observation by a scale that was fitted without its architecture."""
    return [
        judged
        for architecture, on in sorted({(each.architecture, each.on) for each in observations})
        for judged in judge(
            [each for each in observations if (each.architecture, each.on) == (architecture, on)],
            fit_scale(
                [
                    each
                    for each in observations
                    if each.on == on and each.architecture != architecture
                ],
                form,
            ),
        )
    ]


def judge(observations: Iterable[Observation], scale: ErrorScale) -> Iterator[Judged]:
    """Judge *observations* by a scale that knows nothing of them."""
    for each in observations:
        half = scale.half_width(each.difficulty, each.what_ifs)
        yield Judged(each, math.hypot(half, each.known))


def leave_out_what_ifs(observations: Sequence[Observation]) -> list[Judged]:
    """Judge each observation as if no pair had tested its what-ifs, on any architecture."""
    judged = []
    for what_ifs, on in sorted({(each.what_ifs, each.on) for each in observations}):
        here = [each for each in observations if each.on == on]
        scale = fit_scale([each for each in here if not set(each.what_ifs) & set(what_ifs)])
        for each in (each for each in here if each.what_ifs == what_ifs):
            half = scale.half_width(each.difficulty, what_ifs, what_ifs)
            judged.append(Judged(each, math.hypot(half, each.known)))
    return judged


def cover(judged: Sequence[Judged]) -> Coverage:
    """Sum up what *judged* intervals hold; of none, nothing."""
    if not judged:
        return Coverage(0, 0.0, 0.0, 0.0)
    errors = [abs(each.observation.error) for each in judged]
    return Coverage(
        len(judged),
        float(np.mean([each.holds for each in judged])),
        float(np.mean([each.half_width for each in judged])),
        float(np.quantile(errors, LEVEL, method="higher")),
    )
