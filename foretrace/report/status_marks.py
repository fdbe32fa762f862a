"""Statuses of predictions in, the marks that a table has for them out, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.analysis.evidence.evidence import ELSEWHERE, STATUSES, UNVALIDATED, VALIDATED
from foretrace.report.text_layout import ASIDE, Blocks, text

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKS = {VALIDATED: "*", ELSEWHERE: "°", UNVALIDATED: " "}


def explain_marks(statuses: Iterable[str]) -> Blocks:
    """Say which of the predictions have been compared with measurements; nothing without any.

    >>> print(explain_marks(["unvalidated", "tested elsewhere"])[1])
    ° tested elsewhere; the others are unvalidated
    """
    found = set(statuses)
    if found <= {UNVALIDATED}:
        return [text(""), text("All of these are unvalidated", ASIDE)] if found else []
    said = [f"{MARKS[status]} {status}" for status in STATUSES[:-1] if status in found]
    others = ["the others are unvalidated"] if UNVALIDATED in found else []
    return [text(""), text("; ".join([*said, *others]), ASIDE)]
