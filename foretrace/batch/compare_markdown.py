"""A comparison in, a page of Markdown out: errors by what-if and model, and every item beside them.

Errors are percent of the measured step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.analysis.error.prediction_interval import LEVEL
from foretrace.batch.compare import as_pair, doubt
from foretrace.report.number_format import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from foretrace.batch.compare import Comparison, Errors
    from foretrace.batch.rows import Row

ERRORS = ("items", "mean", "median", "p90", "worst", "inside", "no change", "paper")
ITEM = ("recording", "what-if", "before", "after", "predicted", "error", "no change", "noise")


def render_markdown(comparison: Comparison) -> str:
    """Return the page."""
    parts = [
        "# Predicted and measured",
        "",
        "`foretrace compare --markdown` generates this page from the results of `foretrace batch`.",
        "Times are milliseconds of one step; errors are percent of the measured step.",
        f'Intervals mean to hold {LEVEL:.0%} of the measurements; "inside" is how many they hold.',
        '"No change" and "paper" are medians of two null models:',
        "the step as it was, and the constants of the Daydream paper.",
        "",
        *_in_short(comparison),
        *_errors("By what-if", (*comparison.by_transform, comparison.total)),
        *_errors("By model", (*comparison.by_model, comparison.total)),
        *_grid([*comparison.judged, *comparison.inconclusive]),
        *_items("Judged", comparison.judged),
        *_items("Inconclusive", comparison.inconclusive, doubt),
        *_items("Not foreseeable", comparison.unforeseen),
        *_failed(comparison.failed),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _in_short(comparison: Comparison) -> list[str]:
    all_ = comparison.total
    spread = f"median {all_.median:.1%}, mean {all_.mean:.1%}, "
    spread += f"90th percentile {all_.p90:.1%}, worst {all_.worst:.1%}"
    paper = "" if all_.paper is None else f", the paper's constants by {all_.paper:.1%}"
    return [
        "## In short",
        "",
        f"- {all_.items} items judged; {comparison.left_out}.",
        f"- |Error|: {spread}.",
        f'- In the median "no change" is off by {all_.no_change:.1%}{paper}.',
        f"- {all_.inside} of {all_.items} measurements lie inside their interval.",
        "",
    ]


def _errors(title: str, groups: Sequence[Errors]) -> list[str]:
    head = _line(["|error|, %", *ERRORS])
    return [f"## {title}", "", head, f"|---|{'--:|' * len(ERRORS)}", *map(_group, groups), ""]


def _group(errors: Errors) -> str:
    shares = (errors.mean, errors.median, errors.p90, errors.worst)
    cells = [
        errors.group,
        f"{errors.items}",
        *map(_percent, shares),
        f"{errors.inside / errors.items:.0%}",
        _percent(errors.no_change),
        _percent(errors.paper),
    ]
    return _line(cells)


def _grid(rows: Sequence[Row]) -> list[str]:
    """Return the signed error of every model under every what-if."""
    models, whatifs = (sorted({getattr(row, by) for row in rows}) for by in ("model", "transforms"))
    cells = {
        (model, whatif): " / ".join(
            _signed(row) for row in rows if (row.model, row.transforms) == (model, whatif)
        )
        for model in models
        for whatif in whatifs
    }
    return [
        "## Every model under every what-if",
        "",
        "Signed error in percent; in brackets where the measurement is inconclusive.",
        "",
        _line(["model", *whatifs]),
        f"|---|{'--:|' * len(whatifs)}",
        *(_line([model, *(cells[model, whatif] for whatif in whatifs)]) for model in models),
        "",
    ]


def _signed(row: Row) -> str:
    pair = as_pair(row)
    text = f"{100 * pair.error:+.1f}"
    return text if pair.is_conclusive else f"({text})"


def _items(
    title: str, rows: Sequence[Row], remark: Callable[[Row], str] | None = None
) -> list[str]:
    """Return a line per item, with a *remark* each."""
    if not rows:
        return []
    columns = [*ITEM, *(["why"] if remark else [])]
    rule = f"|---|---|{'--:|' * (len(ITEM) - 2)}{'---|' if remark else ''}"
    lines = [_line([*_cells(row), *([remark(row)] if remark else [])]) for row in rows]
    return [f"## {title}", "", _line(columns), rule, *lines, ""]


def _cells(row: Row) -> list[str]:
    pair = as_pair(row)
    times = (pair.before_ns, pair.after_ns, pair.predicted_ns)
    return [
        row.recording,
        f"`{row.scenario}`",
        *(f"{ns / NS_PER_MS:.2f}" for ns in times),
        f"{100 * pair.error:+.1f}",
        f"{100 * pair.null_error:+.1f}",
        "" if row.noise is None else _percent(abs(row.noise)),
    ]


def _failed(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    lines = [f"- {row.recording}, `{row.scenario}`: {row.error}" for row in rows]
    return ["## Failed", "", *lines, ""]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
