"""Throughput over cores and cached data in, a picture out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.report.plot import SHADES, draw_figure, write_picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from foretrace.job.resources.grid import SurveyRow


def draw_resources(rows: Sequence[SurveyRow], best: SurveyRow, path: Path) -> None:
    """Draw samples per second against the cached share, a pair of curves per cores and workers.

    Solid is a cache of fixed content with its interval, dashed a page cache; a ring marks *best*.
    """
    title = "Throughput over CPU cores and cached data"
    write_picture(path, title, lambda: draw_figure((9, 5), lambda empty: _draw(empty, rows, best)))


def _draw(figure: Any, rows: Sequence[SurveyRow], best: SurveyRow) -> None:
    axes = figure.add_subplot()
    for at, (name, curve) in enumerate(_curves(rows).items()):
        curve.sort(key=lambda row: row.cache)
        cached = [100 * row.cache for row in curve]
        shade = SHADES[at % len(SHADES)]
        speeds = [row.speed.value for row in curve]
        ends = ([row.speed.low for row in curve], [row.speed.high for row in curve])
        axes.plot(cached, speeds, marker=".", color=shade, label=name)
        axes.fill_between(cached, *ends, color=shade, alpha=0.12, linewidth=0)
        axes.plot(cached, [row.recent_speed for row in curve], linestyle="--", color=shade)
    axes.plot(
        [100 * best.cache], [best.speed.value], "o", markersize=12, fillstyle="none", color="black",
        label="cheapest near the best",
    )  # fmt: skip
    axes.set_xlabel("% of the data cached (dashed: page cache)")
    axes.set_ylabel("samples/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _curves(rows: Sequence[SurveyRow]) -> dict[str, list[SurveyRow]]:
    """Return rows by what stays the same along the cache axis; workers may be chosen per point."""
    chosen = len({(row.cores, row.cache) for row in rows}) == len(rows)
    curves: dict[str, list[SurveyRow]] = {}
    for row in rows:
        cores = "1 core" if row.cores == 1 else f"{row.cores} cores"
        name = cores if chosen else f"{cores}, {row.workers} loader workers"
        curves.setdefault(name, []).append(row)
    return curves
