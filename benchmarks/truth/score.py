"""``python -m benchmarks.truth.score TABLE``: how far off the answers are, and whether they hold.

In: the table of the truth set. Out: a table of figures, tuned and held out apart, by rules and
calibrated, of all and of each what-if. Held-out rows have no predictions unless they were looked
at (``python -m benchmarks.truth --look``).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.truth.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEVEL = 0.90
NOISY = 0.12
"""Share of a truth that its own rounds leave open; above it a row is counted, and not scored."""
COLUMNS = (
    *("set", "way", "what_if", "pairs", "refused", "noisy"),
    *("noise", "median", "p90", "worst", "paced"),
    *("holds", "validated_holds", "width", "constant", "sign", "clear"),
)
"""``noise`` is the median of what truths leave open. Errors are shares of the true step.
``paced``: median if the recorder's step had been the plain one. ``holds`` and ``validated_holds``:
share of intervals that hold. ``width``: mean half width of intervals, as a share of the prediction;
``constant``: the least one for all of which as many as the level says hold. ``sign``: right
direction among the ``clear`` pairs, which change by more than their noise."""


def score(table: pd.DataFrame) -> pd.DataFrame:
    """Return the figures of *table*, a row for each set, way and what-if."""
    rows = [
        {"set": name, "way": way, "what_if": what_if, **figures(part, way)}
        for name, of_set in sets(table)
        for way in WAYS
        for what_if, part in _parts(of_set)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def sets(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield what was tuned on, and what was held out once it was looked at."""
    yield "tuned", table[~table["held_out"]]
    if "rules_ns" in table and table.loc[table["held_out"], "rules_ns"].notna().any():
        yield "held out", table[table["held_out"]]


def _parts(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    yield "all", table
    for name, part in table.groupby("change", sort=True):
        if "+" not in str(name):
            yield str(name), part
    together = table[table["change"].str.contains("+", regex=False)]
    if len(together):
        yield "two at once", together


def figures(table: pd.DataFrame, way: str) -> dict[str, float]:
    """Return the figures of predictions made in one *way*; NaN where there are none."""
    measured = table[table["problem"] == ""]
    if f"{way}_ns" not in measured:
        return {"pairs": 0, "refused": len(measured), "noisy": 0}
    answered = measured[measured[f"{way}_ns"].notna()]
    quiet = answered[answered["noise"] <= NOISY]
    counts: dict[str, float] = {
        "pairs": len(quiet),
        "refused": len(measured) - len(answered),
        "noisy": len(answered) - len(quiet),
    }
    if quiet.empty:
        return counts
    true, said = quiet["after_ns"], quiet[f"{way}_ns"]
    error = (said / true - 1).abs()
    paced = (said * quiet["base_ns"] / quiet[f"{way}_from_ns"] / true - 1).abs()
    holds = (quiet[f"{way}_low_ns"] <= true) & (true <= quiet[f"{way}_high_ns"])
    validated = quiet[f"{way}_status"] == "validated"
    change = true / quiet["base_ns"] - 1
    clear = change.abs() > quiet["noise"]
    right = np.sign(said / quiet[f"{way}_from_ns"] - 1) == np.sign(change)
    return {
        **counts,
        "noise": quiet["noise"].median(),
        "median": error.median(),
        "p90": error.quantile(LEVEL),
        "worst": error.max(),
        "paced": paced.median(),
        "holds": holds.mean(),
        "validated_holds": holds[validated].mean(),
        "width": ((quiet[f"{way}_high_ns"] - quiet[f"{way}_low_ns"]) / 2 / said).mean(),
        "constant": (true / said - 1).abs().quantile(LEVEL, interpolation="higher"),
        "sign": right[clear].mean(),
        "clear": int(clear.sum()),
    }


def as_text(scored: pd.DataFrame) -> str:
    """Return figures as a table of Markdown, shares in percent."""
    shares = [name for name in COLUMNS[6:] if name != "clear"]
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    for row in scored.to_dict("records"):
        cells = [
            ""
            if pd.isna(row[name])
            else f"{100 * row[name]:.1f}"
            if name in shares
            else f"{row[name]:.0f}"
            if isinstance(row[name], float)
            else str(row[name])
            for name in COLUMNS
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.score")
    parser.add_argument("table", type=Path)
    asked = parser.parse_args(arguments)
    sys.stdout.write(as_text(score(pd.read_parquet(asked.table))))


if __name__ == "__main__":
    main()
