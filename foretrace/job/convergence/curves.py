"""Forms of a falling loss, and their fit: an amplitude times a falling function, plus an asymptote.

In: steps since the beginning, losses, weights. Out: `Curves`, one for each row of losses. Shapes
are tried on a grid and the rest is linear, so that a fit has no starting point and no local minima,
and thousands of resampled logs are fitted at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

TINY = 1e-300


def _grid(*axes: Floats) -> Floats:
    """Return all combinations, one a row."""
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def _hyperbola(times: Floats, shapes: Floats) -> Floats:
    return 1 / (times + shapes[:, :1])


def _power(times: Floats, shapes: Floats) -> Floats:
    return (times + shapes[:, :1]) ** -shapes[:, 1:]


def _exponential(times: Floats, shapes: Floats) -> Floats:
    return np.exp(-times / shapes[:, :1])


_ORIGINS = np.append(0.0, np.geomspace(1e-3, 10, 25))
"""By how much of the last step the beginning of a power law lies before the log's."""
FORMS: dict[str, tuple[Callable[[Floats, Floats], Floats], Floats]] = {
    "optimus": (_hyperbola, _grid(_ORIGINS)),
    "power": (_power, _grid(_ORIGINS, np.geomspace(0.1, 4, 26))),
    "exponential": (_exponential, _grid(np.geomspace(0.02, 30, 60))),
}
"""Falling functions of the time in parts of the last step, and the shapes that are tried.

``optimus``: 1 / (b0 k + b1) + b2, with b0, b1, b2 not negative (Optimus, EuroSys 2018).
``power``: a (k + k0)^-c + b. ``exponential``: a exp(-k / tau) + b.
"""


@dataclass(frozen=True)
class Curves:
    """Fitted curves of one form, one for each row of losses.

    ``amplitudes`` and ``asymptotes`` have the unit of the loss; ``shapes`` are in parts of
    ``scale``, which is in steps.
    """

    form: str
    shapes: Floats
    amplitudes: Floats
    asymptotes: Floats
    scale: float

    def at(self, times: Floats) -> Floats:
        """Return losses of shape (curves, times)."""
        function = FORMS[self.form][0]
        return (
            self.amplitudes[:, None] * function(times / self.scale, self.shapes)
            + (self.asymptotes[:, None])
        )

    def one(self, row: int) -> Curves:
        """Return one of the curves."""
        only = slice(row, row + 1)
        return Curves(
            self.form,
            self.shapes[only],
            self.amplitudes[only],
            self.asymptotes[only],
            self.scale,
        )

    def first_below(self, target: float, horizon: float) -> float:
        """Return the time until *horizon* at which the first curve reaches *target*, or infinity.

        >>> curve = fit_form("optimus", np.arange(1.0, 50), 100 / np.arange(1.0, 50), np.ones(49))
        >>> round(curve.first_below(1.0, horizon=200))
        100
        """
        if self.at(np.array([horizon]))[0, 0] > target:
            return np.inf
        low, high = 0.0, horizon
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if self.at(np.array([middle]))[0, 0] > target else (low, middle)
            )
        return high


def fit_form(form: str, times: Floats, losses: Floats, weights: Floats) -> Curves:
    """Fit *form* to each row of *losses* by weighted least squares.

    Parameters
    ----------
    form
        A key of `FORMS`.
    times
        Steps since the beginning, rising, above 0.
    losses
        Of shape (times,) or (rows, times). Where none is negative, no asymptote is.
    weights
        Of shape (times,), above 0.
    """
    rows = np.atleast_2d(losses)
    function, shapes = FORMS[form]
    basis = function(times / times[-1], shapes)
    shares = weights / weights.sum()
    amplitudes, asymptotes, misfits = _with_asymptote(basis, rows, shares)
    if rows.min() >= 0:
        through_zero, misfits_zero = _without_asymptote(basis, rows, shares)
        below = asymptotes < 0
        amplitudes = np.where(below, through_zero, amplitudes)
        asymptotes = np.where(below, 0.0, asymptotes)
        misfits = np.where(below, misfits_zero, misfits)
    best, each = np.argmin(misfits, axis=0), np.arange(len(rows))
    return Curves(
        form, shapes[best], amplitudes[best, each], asymptotes[best, each], float(times[-1])
    )


def _with_asymptote(basis: Floats, rows: Floats, shares: Floats) -> tuple[Floats, Floats, Floats]:
    """Return amplitudes, asymptotes and misfits of shape (shapes, rows); no amplitude below 0."""
    basis_mean, row_mean = basis @ shares, rows @ shares
    centred, from_mean = basis - basis_mean[:, None], rows - row_mean[:, None]
    spread = (centred**2 @ shares)[:, None]
    shared = (centred * shares) @ from_mean.T
    amplitudes = np.maximum(shared / np.maximum(spread, TINY), 0)
    misfits = from_mean**2 @ shares - amplitudes * shared
    return amplitudes, row_mean - amplitudes * basis_mean[:, None], misfits


def _without_asymptote(basis: Floats, rows: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return amplitudes and misfits of curves that fall to zero."""
    spread = (basis**2 @ shares)[:, None]
    shared = (basis * shares) @ rows.T
    amplitudes = np.maximum(shared / np.maximum(spread, TINY), 0)
    return amplitudes, rows**2 @ shares - amplitudes * shared
