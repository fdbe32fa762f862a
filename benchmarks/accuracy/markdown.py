"""Errors and rows in, cells and tables of Markdown out: what all pages of the study share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table; the first column holds text, the others numbers."""
    rule = "|".join(["---", *["--:"] * (len(columns) - 1)])
    return [f"| {' | '.join(columns)} |", f"|{rule}|", *(f"| {' | '.join(li)} |" for li in lines)]


def percent(share: float, digits: int = 1) -> str:
    """Return *share* in percent with its sign."""
    return f"{share:+.{digits}%}"


def spread(errors: Iterable[float | None]) -> tuple[float, float, float] | None:
    """Return median, 90th percentile and largest |error|; ``None`` where there is none."""
    off = [abs(error) for error in errors if error is not None]
    return (float(np.median(off)), float(np.quantile(off, 0.9)), max(off)) if off else None


def spread_cell(errors: Iterable[float | None]) -> str:
    """Return median / 90th percentile / largest of the absolute *errors*, in percent.

    >>> spread_cell([0.01, None, -0.03]), spread_cell([])
    ('2.0 / 2.8 / 3.0', '')
    """
    return " / ".join(f"{100 * share:.1f}" for share in spread(errors) or ())


def spread_sentence(errors: Mapping[str, Iterable[float | None]]) -> str:
    """Return median and 90th percentile of each kind of *errors*, where it has any.

    >>> spread_sentence({"predicted": [0.01, -0.03], "paper": [None]})
    'predicted 2.0%, 90th percentile 2.8%'
    """
    spreads = {name: spread(each) for name, each in errors.items()}
    return "; ".join(
        f"{name} {each[0]:.1%}, 90th percentile {each[1]:.1%}"
        for name, each in spreads.items()
        if each
    )
