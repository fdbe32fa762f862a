"""A result in, text for people or one JSON object out. Nothing is computed here.

Times are ms, errors are signed percent of the measured value, and unknown is null, never 0.
"""

from __future__ import annotations

import json
from typing import Any

import foretrace.report.advice
import foretrace.report.difference
import foretrace.report.memory
import foretrace.report.prediction
import foretrace.report.summary
import foretrace.report.what_ifs  # noqa: F401  # each registers the forms of its results
from foretrace.report.dispatch import json_keys, text_blocks
from foretrace.report.text_layout import render


def as_json(report: object) -> str:
    """Return *report* as one JSON object on one line."""
    return json.dumps(as_keys(report), allow_nan=False) + "\n"


def as_keys(report: object) -> dict[str, Any]:
    """Return the keys of the JSON object of *report*."""
    return json_keys(report)


def as_text(report: object, *, terminal: bool = False) -> str:
    """Return *report* as text: plain lines, or coloured and broken as the *terminal* is wide."""
    return render(text_blocks(report), terminal=terminal)
