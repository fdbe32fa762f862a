"""The lines that a rank is told, and what it answers."""

from __future__ import annotations

import io
import json

from foretrace.tracer.lab.network.party import Party
from foretrace.tracer.lab.network.rank_worker import serve


def test_lines_are_answered_until_one_fails() -> None:
    """The failure is the last reply: peers inside a collective would wait for this rank forever."""
    lines = io.StringIO('{"do": "add", "to": 3}\n{"do": "fly"}\n{"do": "add", "to": 4}\n')
    replies = io.StringIO()
    serve(Party(1, 2, 0, None), {"add": lambda to: to + 1}, lines, replies)

    added, failed = (json.loads(line) for line in replies.getvalue().splitlines())
    assert added == {"reply": 4}
    assert failed == {"error": "rank 1: KeyError: 'fly'"}
