"""Pairs of the accuracy study in, a picture out: predicted against measured, beside null models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.report.plot import SHADES, draw_figure, write_picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from foretrace.analysis.evidence.measured_pair import MeasuredPair

BAND = 0.1
"""Errors that the shaded band holds."""
INCHES = (10.5, 4.6)
RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 10)
PERCENTS = (0, 1, 2, 5, 10, 20, 50, 100)


def draw_accuracy(pairs: Sequence[MeasuredPair], path: Path) -> None:
    """Draw every pair of *pairs*, and how the errors of the null models are spread beside ours."""
    title = "Predicted against measured"
    write_picture(path, title, lambda: draw_figure(INCHES, lambda empty: _both(empty, pairs)))


def _both(figure: Any, pairs: Sequence[MeasuredPair]) -> None:
    left, right = figure.subplots(1, 2)
    _against_measured(left, pairs)
    _spread(right, pairs)


def _against_measured(axes: Any, pairs: Sequence[MeasuredPair]) -> None:
    """Put a mark per pair where the ratio of its steps was measured and predicted."""
    ends = np.array([min(map(_measured, pairs)) / 1.3, max(map(_measured, pairs)) * 1.3])
    axes.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color="#888888", alpha=0.2)
    axes.plot(ends, ends, color="#888888", linewidth=0.8)
    names = sorted({_name(pair) for pair in pairs})
    for number, name in enumerate(names):
        rows = [pair for pair in pairs if _name(pair) == name]
        axes.scatter(
            [_measured(row) for row in rows],
            [row.predicted_ns / row.before_ns for row in rows],
            s=18,
            marker="osD^vPX*"[number // len(SHADES) % 8],
            color=SHADES[number % len(SHADES)],
            label=f"{name} ({len(rows)})",
        )
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        _mark(axis, [ratio for ratio in RATIOS if ends[0] < ratio < ends[1]])
    axes.set_xlabel("measured: time after / time before")
    axes.set_ylabel("predicted: time after / time before")
    axes.set_title(f"{len(pairs)} pairs; the band is ±{BAND:.0%}", loc="left", fontsize=10)
    axes.legend(fontsize=6)


def _spread(axes: Any, pairs: Sequence[MeasuredPair]) -> None:
    """Draw which share of the pairs has at most a given |error|."""
    kinds = {
        "predicted": [row.error for row in pairs],
        "no change": [row.null_error for row in pairs],
        "paper's constants": [row.paper_error for row in pairs if row.paper_error is not None],
    }
    for (name, errors), shade in zip(kinds.items(), SHADES, strict=False):
        sizes = np.sort(np.abs(errors))
        shares = np.arange(1, len(sizes) + 1) / max(len(sizes), 1)
        axes.step(100 * sizes, 100 * shares, where="post", color=shade, label=name)
    axes.set_xscale("symlog", linthresh=1)
    _mark(axes.xaxis, PERCENTS)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 100)
    axes.set_xlabel("|error|, % of the measured time")
    axes.set_ylabel("% of the pairs")
    axes.set_title("pairs with at most this error", loc="left", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")


def _mark(axis: Any, values: Sequence[float]) -> None:
    """Label *axis* at *values* in plain numbers."""
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


def _measured(pair: MeasuredPair) -> float:
    return pair.after_ns / pair.before_ns


def _name(pair: MeasuredPair) -> str:
    return " + ".join(pair.transforms)
