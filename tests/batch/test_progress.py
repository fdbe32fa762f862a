"""Progress: a few plain lines in a log, a bar on a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from foretrace.batch.progress import LINES, progress

if TYPE_CHECKING:
    import pytest


def test_a_log_gets_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """However many items there are; the last line says how long it took."""
    with progress(200) as advance:
        for number in range(200):
            advance("failed" if number == 5 else None)
    told = capsys.readouterr().err.splitlines()

    assert len(told) == LINES
    assert told[0].startswith("20 of 200 items, 1 failed, about 0:00:")
    assert told[-1].startswith("200 of 200 items, 1 failed in 0:00:")


def test_nothing_to_do_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything is known from before."""
    with progress(0) as advance:
        advance(None)

    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts items and failures, and is gone afterwards."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress(2) as advance:
        advance("failed")
        advance(None)

    assert "2/2" in terminal.getvalue()
    assert "1 failed" in terminal.getvalue()
