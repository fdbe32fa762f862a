"""The table of the truth set in, what the accuracy page says of it out.

Its jobs were drawn at random and measured as a user runs them (`benchmarks.truth`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from benchmarks.truth.looks import count_looks
from benchmarks.truth.score import as_text, figures, score, sets
from benchmarks.truth.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pandas import DataFrame

EXPLAINED = """\
Architectures from a list of all that transformers knows, from networks and training loops written
for this, drawn by a seed with their sizes; a third of the architectures was held out before
anything was measured. Before and after are measured in turns, in plain processes, with nothing of
this project in them; predictions are made from a recording of the same job.
*Noise* is what the rounds of a truth leave open (two standard errors, the median of them):
what is off by less is not known to be off. *Paced* is the error had the recorder met the plain
step: the rest of *median* is how far the machine's pace went between the two.
Widths of intervals are shares of the prediction. *Constant* is the best single width, and *clear*
counts the changes that exceed their noise, by which *sign* is judged."""


def read_table(path: Path) -> DataFrame | None:
    """Return the table of the truth set; ``None`` where it was not measured yet."""
    return pd.read_parquet(path) if path.is_file() else None


def drawn_sentences(table: DataFrame | None) -> list[str]:
    """Return a line for the head of the page for each set."""
    return [] if table is None else [f"- {_sentence(name, part)}" for name, part in sets(table)]


def drawn_section(table: DataFrame | None) -> list[str]:
    """Return the section on drawn jobs."""
    if table is None:
        return []
    problems = table.loc[table["problem"] != "", "problem"].str.removeprefix("not measured: ")
    return [
        "## Drawn jobs, run plainly",
        "",
        *EXPLAINED.splitlines(),
        "",
        *as_text(score(table)).splitlines(),
        "",
        *(f"- {count} not measured: {why}" for why, count in problems.value_counts().items()),
        "",
    ]


def _sentence(name: str, part: DataFrame) -> str:
    held_out = f"held-out architectures (looks so far: {count_looks()})"
    kind = "tuned on" if name == "tuned" else held_out
    said = ", ".join(_of_each_way(part))
    jobs, architectures = part["name"].nunique(), part["architecture"].nunique()
    return (
        f"CPU, {jobs} jobs of {architectures} architectures drawn at random and run plainly, "
        f"{kind}: median |error| {said}."
    )


def _of_each_way(part: DataFrame) -> Iterator[str]:
    for way in WAYS:
        of = figures(part, way)
        if of["pairs"]:
            how = "by rules" if way == WAYS[0] else "with a calibration"
            yield (
                f"{of['median']:.1%} (9 of 10 within {of['p90']:.1%}) {how} over "
                f"{of['pairs']:.0f} answers, of whose intervals {of['holds']:.0%} hold"
            )
    yield f"truths known to {figures(part, WAYS[0])['noise']:.1%}"
