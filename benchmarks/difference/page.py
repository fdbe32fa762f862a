"""Verdicts in, the page docs/accuracy-diff.md out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.accuracy.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from benchmarks.difference.public import PublicVerdict

SHOWN_PARTS = 3
INTRODUCTION = """# Accuracy of differences

Written by `python -m benchmarks.difference{look}`.

## Programs that differ in one cause

A small simulator of CUDA and PyTorch (tests/counterfactual) runs a random training program and the
same one with one thing changed, which makes a tenth of a step or more; what takes time varies
anew. Both are recorded as a profiler would, and `foretrace diff` is asked why they differ.

*Named*: the largest part is the cause. *Holds*: the interval of that part contains the true
difference of the steps. *Sum*: how far the parts and what is not explained are from the difference
of the measured steps, at most; *open* what of it replay does not explain, the median and the
largest but a tenth. Every third seed is held out{looked}.
"""
PUBLIC = """## Public recordings, the change known

Listed with what may be named in `benchmarks/difference/pairs.toml`. Several of these pairs differ
in more than their change, which is why one of several parts may be right; what is judged is the
largest. Parts are in ms per step, more is slower.
"""


def page(pairs: pd.DataFrame, public: Sequence[PublicVerdict], *, look: bool) -> str:
    """Return the page."""
    looked = "; they are among these pairs, compared once" if look else " and not compared here"
    parts = [
        INTRODUCTION.format(look=" --look" if look else "", looked=looked),
        *_pair_table(pairs),
        *_misses(pairs[~pairs["is_named"].astype(bool)]),
    ]
    if public:
        parts += ["", PUBLIC, *_public_table(public)]
    return "\n".join([*parts, ""])


def _pair_table(pairs: pd.DataFrame) -> list[str]:
    held_out = pairs["is_held_out"].astype(bool)
    groups = [("all", pairs), ("held out", pairs[held_out]), ("the others", pairs[~held_out])]
    groups += [(str(cause), group) for cause, group in pairs.groupby("cause")]
    columns = ["cause", "pairs", "named", "holds", "sum", "open", "in doubt"]
    return table(columns, [_row(name, group) for name, group in groups if len(group)])


def _row(name: str, group: pd.DataFrame) -> list[str]:
    said = group["said_ns"].abs()
    open_ = group["unexplained_ns"].abs() / said
    return [
        name,
        str(len(group)),
        f"{group['is_named'].mean():.1%}",
        f"{group['holds'].mean():.0%}",
        f"{(group['sum_off_ns'].abs() / said).max():.1e}",
        f"{open_.median():.1%} / {open_.quantile(0.9):.1%}",
        f"{group['doubts'].map(lambda codes: codes is not None and len(codes) > 0).mean():.0%}",
    ]


def _misses(missed: pd.DataFrame) -> list[str]:
    """Return the pairs of which another cause is named."""
    if not len(missed):
        return []
    lines = [
        (
            f"{row['cause']}, seed {row['seed']}",
            str(row["named"]),
            *(f"{row[name] / 1_000:,.0f}" for name in ("before_ns", "difference_ns", "part_ns")),
            f"{row['unexplained_ns'] / 1_000:,.0f}",
            ", ".join(dict.fromkeys(row["doubts"])) if row["doubts"] is not None else "",
        )
        for _, row in missed.iterrows()
    ]
    columns = ["not named", "named", "step, µs", "differs", "its part", "open", "doubts"]
    return ["", *table(columns, lines)]


def _public_table(verdicts: Iterable[PublicVerdict]) -> list[str]:
    columns = ["pair", "change", "before, ms", "after, ms", "what `diff` says", "doubts", "judged"]
    head, _, *lines = table(columns, [_public_row(verdict) for verdict in verdicts])
    return [head, f"|{'|'.join(['---'] * len(columns))}|", *lines]  # words, no numbers


def _public_row(verdict: PublicVerdict) -> list[str]:
    pair, found = verdict.pair, verdict.difference
    if found is None:
        return [pair.id, pair.change, "", "", verdict.refused, "", verdict.judged]
    parts = [f"{part.cause} {part.ns / 1e6:+,.2f}" for part in found.parts[:SHOWN_PARTS]]
    return [
        pair.id,
        pair.change,
        *(f"{side.measured.step_ns / 1e6:,.2f}" for side in (found.before, found.after)),
        ", ".join([*parts, f"open {found.unexplained_ns / 1e6:+,.2f}"]),
        ", ".join(dict.fromkeys(doubt.code for doubt in found.doubts)),
        verdict.judged,
    ]
