"""Observations in, the scale of intervals out, and what it holds of architectures it never saw.

Every architecture counts as much as any other. How far off it is, in units of what is expected of
such answers, is judged by a scale that was fitted without it (as the jackknife+ of Barber, Candès,
Ramdas and Tibshirani, Annals of Statistics 2021, leaves one out). The quantile of these over
groups, with one more group of which nothing is known, is that of Lee, Barber and Willett
(Distribution-free inference with hierarchical data, arXiv 2306.06342), who correct the pooling of
Dunn, Wasserman and Ramdas (Distribution-free prediction sets for two-layer hierarchical models,
JASA 2023) for few groups: an answer about a new architecture is held in at least 9 of 10 cases.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks.accuracy.intervals.observations import PLAIN
from foretrace.analysis.error.difficulty import Difficulty
from foretrace.analysis.error.error_scale import ARCHITECTURES, PAIRS, WIDEST, ErrorScale
from foretrace.analysis.error.prediction_interval import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.accuracy.intervals.observations import Observation

FEWEST = round(LEVEL / (1 - LEVEL))
"""Of fewer groups, or pairs, no such quantile is known: the next may be beyond all of them."""
SHRINK = 2
"""Architectures on which a what-if is taken to be as far off as others, beside those that say."""
DIGITS = 4


class Form(NamedTuple):
    """What a scale may depend on: covariates by name, and whether a what-if may widen it."""

    covariates: tuple[str, ...] = ()
    has_factors: bool = False


ONE_WIDTH = Form()
CHOSEN = Form(Difficulty._fields, has_factors=True)
FORMS = {
    "one width for all": ONE_WIDTH,
    "size of the change": Form(("change",)),
    "a width for each what-if": Form((), has_factors=True),
    "shares by rule and timed": Form(("rule", "timed")),
    "all covariates": Form(Difficulty._fields),
    "all covariates, wider for some what-ifs": CHOSEN,
}
"""Scales that are compared; the last is used."""


def fit_scales(observations: Sequence[Observation], form: Form = CHOSEN) -> dict[str, ErrorScale]:
    """Return the scale of each kind of hardware; held-out architectures are left out."""
    kinds = sorted({each.on for each in observations})
    return {on: fit_scale([each for each in observations if each.on == on], form) for on in kinds}


def fit_scale(observations: Sequence[Observation], form: Form = CHOSEN) -> ErrorScale:
    """Return the scale that *observations* of one kind of hardware teach.

    Where too few architectures tell covariates apart, one width holds for all.
    """
    seen = choose(observations)
    if not seen:
        return ErrorScale(basis=WIDEST)
    groups = _groups(seen)
    if len(groups) < FEWEST:
        form = ONE_WIDTH
    scores = _scores(groups, form)
    quantile, basis = conformal_quantile(scores)
    untested, _ = conformal_quantile([[each.excess for each in group] for group in groups])
    return replace(
        _fit(seen, form),
        quantile=_up(quantile),
        untested=_up(untested),
        basis=basis,
        architectures=len(groups),
        pairs=len(seen),
    )


def choose(observations: Sequence[Observation]) -> list[Observation]:
    """Return what is fitted on: plain runs, where there are enough, since a user's job is one."""
    seen = [each for each in observations if not each.held_out]
    plain = [each for each in seen if each.source == PLAIN]
    return plain if len(_groups(plain)) >= FEWEST else seen


def _groups(observations: Sequence[Observation]) -> list[list[Observation]]:
    groups: dict[str, list[Observation]] = {}
    for each in observations:
        groups.setdefault(each.architecture, []).append(each)
    return list(groups.values())


def _scores(groups: Sequence[Sequence[Observation]], form: Form) -> list[list[float]]:
    """Return by architecture how many times as far off as expected, by scales without it."""
    scores = []
    for group in groups:
        others = [each for other in groups if other is not group for each in other]
        scale = _fit(others or group, form)
        scores.append(
            [each.excess / scale.expected(each.difficulty, each.what_ifs) for each in group]
        )
    return scores


def conformal_quantile(scores: Sequence[Sequence[float]]) -> tuple[float, str]:
    """Return what holds the next score in at least `LEVEL` of the cases, and what that rests on.

    *scores* are those of each group. Of a new group, all groups and one more, which may be
    anything, are equally likely. With too few groups it is the next score that is held as if
    scores were exchangeable, and with too few scores the largest.

    >>> conformal_quantile([[n, n] for n in range(1, 10)])
    (9.0, 'architectures')
    >>> conformal_quantile([range(1, 20)]), conformal_quantile([[1, 2]])
    ((18.0, 'pairs'), (2.0, 'widest'))
    """
    every = np.concatenate([np.asarray(group, np.float64) for group in scores])
    order = np.argsort(every, kind="stable")
    if len(scores) >= FEWEST:
        sizes = [len(group) for group in scores]
        basis, weight = (
            ARCHITECTURES,
            np.repeat([1 / (n * (len(scores) + 1)) for n in sizes], sizes),
        )
    else:
        basis, weight = PAIRS, np.full(len(every), 1 / (len(every) + 1))
    held = np.cumsum(weight[order]) >= LEVEL - 1e-9
    if not held.any():
        return float(every.max()), WIDEST
    return float(every[order][held.argmax()]), basis


def _fit(observations: Sequence[Observation], form: Form) -> ErrorScale:
    """Return the expected |error|, never less for more of a covariate (non-negative squares).

    Where nothing tells answers apart, the quantile of a score is that of the error itself.
    """
    if form == ONE_WIDTH:
        return ErrorScale(base=1.0)
    weight, error = _weights(observations), np.array([abs(each.error) for each in observations])
    columns = [
        [getattr(each.difficulty, name) for each in observations] for name in form.covariates
    ]
    matrix = np.column_stack([np.ones(len(error)), *columns])
    root = np.sqrt(weight)
    base, *slopes = np.round(nnls(matrix * root[:, None], error * root)[0], DIGITS).tolist()
    named = dict(zip(form.covariates, slopes, strict=True))
    scale = ErrorScale(max(base, 10.0**-DIGITS), Difficulty(**named))
    if not form.has_factors:
        return scale
    factors = _factors(observations, scale)
    if form.covariates:
        factors = {name: factor for name, factor in factors.items() if factor > 1}
    return replace(scale, factors=factors)


def _factors(observations: Sequence[Observation], scale: ErrorScale) -> dict[str, float]:
    """Return how many times as far off as their difficulty tells each what-if is."""
    factors = {}
    for name in sorted({name for each in observations for name in each.what_ifs}):
        alone = [each for each in observations if each.what_ifs == (name,)]
        if not alone:
            continue
        ratio = [abs(each.error) / scale.expected(each.difficulty, ()) for each in alone]
        count, mean = len(_groups(alone)), float(np.average(ratio, weights=_weights(alone)))
        factors[name] = round((count * mean + SHRINK) / (count + SHRINK), 2)
    return factors


def _weights(observations: Sequence[Observation]) -> NDArray[np.float64]:
    """Return weights that add up to 1 for each architecture."""
    sizes = {group[0].architecture: len(group) for group in _groups(observations)}
    return np.array([1 / sizes[each.architecture] for each in observations])


def _up(value: float) -> float:
    return math.ceil(value * 10**DIGITS) / 10**DIGITS
