"""A row of the study, for tests of what is made of such rows."""

from __future__ import annotations

from foretrace.analysis.evidence.measured_pair import MeasuredPair


def pair(name: str, error: float, **settings: object) -> MeasuredPair:
    """Return an amp pair that took 100 before and 50 after, predicted by rule with *error*."""
    values: dict[str, object] = {
        "model": name,
        "change": "amp",
        "hardware": "gpu",
        "transforms": ("amp",),
        "measure": "step",
        "before_ns": 100.0,
        "after_ns": 50.0,
        "paper_ns": 60.0,
    }
    return MeasuredPair(name=name, rule_ns=50.0 * (1 + error), **{**values, **settings})  # type: ignore[arg-type]
