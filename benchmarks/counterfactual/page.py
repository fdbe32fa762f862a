"""A table of verdicts in, the page docs/accuracy-counterfactual.md out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

OUTCOMES = ("right", "roughly right", "doubted", "refused", "silently wrong", "crashed")
WORST = 25
INTRODUCTION = """# Accuracy on programs with known answers

Written by `python -m benchmarks.counterfactual --programs {programs} --seed {seed}`.

A small simulator of CUDA and PyTorch (tests/counterfactual), written from their documentation and
not from Foretrace's rules, runs random training programs. It writes the recording that a profiler
would have written of a few steps, and runs the program again with a change made: the true answer.

*Right*: within 3 %. *Roughly right*: within 10 %. *Doubted*: further off, but the prediction names
a doubt. *Refused*: no prediction, with the reason. *Silently wrong*: further off without a word.
*Holds*: the 90 % interval contains the truth. *Doubt when right*: right answers that name a doubt.
"""


def page(table: pd.DataFrame, programs: int, seed: int) -> str:
    """Return the page."""
    what_if = table["what_if"].str.extract(r"^(\w+)", expand=False).fillna("(crashed)")
    parts = [
        INTRODUCTION.format(programs=programs, seed=seed),
        _section("All", [("all", table)]),
        _section("By what sets the pace", table.groupby("regime")),
        _section("By what sets the pace after the change", table.groupby("regime_after")),
        _section("By what-if", table.groupby(what_if)),
        _section("By feature", _by_feature(table)),
        _worst(table),
    ]
    return "\n".join(parts)


def _section(title: str, groups: Iterable[tuple[Any, pd.DataFrame]]) -> str:
    head = ["", "predictions", *OUTCOMES, "holds", "doubt when right"]
    rows = [_row(name, group) for name, group in groups]
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---", *["--:"] * (len(head) - 1)], *rows]]
    return "\n".join([f"## {title}\n", *lines, ""])


def _row(name: str, group: pd.DataFrame) -> list[str]:
    shares = group["outcome"].value_counts(normalize=True)
    answered = group[group["predicted_ns"].notna()]
    right = group[group["outcome"] == "right"]
    doubted = (right["doubts"].map(len) > 0).mean() if len(right) else float("nan")
    return [
        name,
        str(len(group)),
        *(f"{shares.get(outcome, 0.0):.1%}" for outcome in OUTCOMES),
        f"{answered['in_interval'].astype(float).mean():.0%}",
        f"{doubted:.0%}",
    ]


def _by_feature(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    named = table[table["features"].notna()].explode("features").dropna(subset="features")
    return [(str(name), group) for name, group in named.groupby("features")]


def _worst(table: pd.DataFrame) -> str:
    wrong = table[table["outcome"].isin(["silently wrong", "crashed"])]
    order = wrong["error"].abs().sort_values(ascending=False, na_position="first").index
    lines = ["## The worst\n", "| seed | what-if | before, µs | true, µs | predicted, µs | error |"]
    lines.append("| --: | --- | --: | --: | --: | --: |")
    for _, row in wrong.loc[order[:WORST]].iterrows():
        times = (f"{row[name] / 1_000:,.0f}" for name in ("before_ns", "true_ns", "predicted_ns"))
        cells = (str(row["seed"]), f"`{row['what_if']}`", *times, f"{row['error']:+.1%}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
