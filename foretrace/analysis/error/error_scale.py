"""How far off answers get on one kind of hardware: their difficulty in, half an interval out.

An interval is *conformal*: its half width is a quantile of how far measured pairs of other
architectures were off, each divided by what its difficulty lets expect (Vovk, Gammerman and
Shafer, Algorithmic Learning in a Random World, 2005; with such a scale: Lei, G'Sell, Rinaldo,
Tibshirani and Wasserman, JASA 2018; quantiles as the scale: Romano, Patterson and Candès, NeurIPS
2019). It holds whatever the errors look like, if a job's architecture is as likely to be an odd one
as those measured. `benchmarks.accuracy.intervals.scale_fit` finds the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretrace.analysis.error.difficulty import NONE, Difficulty
from foretrace.analysis.error.parts import MADE_OF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ARCHITECTURES, PAIRS, WIDEST = "architectures", "pairs", "widest"
"""What a quantile rests on, best first: new architectures are held; too few of them, so new pairs
are; too few of those, so it is the largest error known."""


@dataclass(frozen=True)
class ErrorScale:
    """What pairs on one kind of hardware taught about |ln(true / predicted)|.

    The error to expect is ``base`` and a share of each covariate of `Difficulty` (``slopes``),
    times the largest of the ``factors`` of its what-ifs, 1 where not named. ``quantile`` times that
    holds the truth in 9 of 10 cases. ``untested`` holds it where nothing of an answer is told apart
    but the hardware. ``basis`` is what the quantile rests on.
    """

    base: float = 0.0
    slopes: Difficulty = NONE
    factors: Mapping[str, float] = field(default_factory=dict)
    quantile: float = 0.0
    untested: float = 0.0
    basis: str = ARCHITECTURES
    architectures: int = 0
    pairs: int = 0

    def expected(self, difficulty: Difficulty, what_ifs: Iterable[str]) -> float:
        """Return the error to expect of an answer to *what_ifs*."""
        parts = (slope * value for slope, value in zip(self.slopes, difficulty, strict=True))
        return (self.base + sum(parts)) * self.factor(what_ifs)

    def factor(self, what_ifs: Iterable[str]) -> float:
        """Return how many times as far off answers to these are as others of their difficulty."""
        every = (part for name in what_ifs for part in (name, *MADE_OF.get(name, ())))
        return max((self.factors.get(name, 1.0) for name in every), default=1.0)

    def half_width(
        self, difficulty: Difficulty, what_ifs: Iterable[str], untested: Iterable[str] = ()
    ) -> float:
        """Return half the width, as |ln|, of the interval of an answer to *what_ifs*.

        Of those *untested* nothing is known: they count as the worst that was tested does.

        >>> scale = ErrorScale(0.01, Difficulty(rule=0.05), {"amp": 2.0}, 3.0, untested=0.1)
        >>> half = Difficulty(rule=0.4)
        >>> [round(scale.half_width(half, [name]), 3) for name in ("amp", "batch_size")]
        [0.18, 0.09]
        >>> round(scale.half_width(half, ["new"], untested=["new"]), 3)
        0.18
        """
        if not tuple(untested):
            return self.quantile * self.expected(difficulty, what_ifs)
        worst = self.quantile * self.expected(difficulty, (*what_ifs, *self.factors))
        return max(worst, self.untested)

    def as_table(self) -> dict[str, Any]:
        """Return it as `read_scale` reads it."""
        plain = ("quantile", "untested", "basis", "architectures", "pairs")
        return {
            "base": self.base,
            **self.slopes._asdict(),
            **{name: getattr(self, name) for name in plain},
            **({"factors": dict(self.factors)} if self.factors else {}),
        }


def read_scale(table: Mapping[str, Any]) -> ErrorScale:
    """Return what a table says; of an empty one nothing is known.

    >>> scale = ErrorScale(0.01, Difficulty(rule=0.05), {"amp": 2.0}, 3.0)
    >>> read_scale(scale.as_table()) == scale
    True
    """
    rest = {name: value for name, value in table.items() if name not in Difficulty._fields}
    return ErrorScale(
        slopes=Difficulty(*(table.get(name, 0.0) for name in Difficulty._fields)), **rest
    )
