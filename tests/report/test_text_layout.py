"""What reports are made of: plain where nobody watches, coloured and folded on a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from foretrace.report.forms import as_text
from foretrace.report.text_layout import change_text, fact_table, heading, note_list, render, table
from tests.support.measured.predictions import PREDICTION
from tests.support.recordings.kineto import write_small_trace
from tests.support.terminal import on_terminal

if TYPE_CHECKING:
    from pathlib import Path

WHAT_IF = "faster_kernels(speedup=2)"
CODE = re.compile(r"\x1b\[[\d;]*m")


def test_columns_are_aligned_and_nothing_trails() -> None:
    """Words stand left, numbers right, two blanks between."""
    rows = [("kernel", "9.50", "93.1"), ("gap", "0.25", "2.0")]

    assert render([table("lrr", rows, ("Path, ms", "before", "after"))]) == (
        "Path, ms  before  after\n  kernel    9.50   93.1\n  gap       0.25    2.0\n"
    )
    assert render([fact_table(("measured", "9.50 ms", ""))]) == "  measured  9.50 ms\n"


def test_notes_need_a_title_only_if_there_are_some() -> None:
    """No empty heading is left."""
    assert render(note_list("Warnings", ["hot"])) == "Warnings\n  - hot\n"
    assert render(note_list("Warnings", [])) == ""


def test_a_long_line_is_not_broken_where_it_is_no_terminal() -> None:
    """A log can be searched."""
    long = "word " * 400

    assert render([heading("x"), *note_list("Warnings", [long])]).count("\n") == 3
    assert render([long]).count("\n") == 1


@pytest.mark.parametrize("words", ["[red]x[/red]", "[/]", ":smile:", "\\[bold]", "[link=a]b"])
def test_words_are_never_read_as_markup(words: str) -> None:
    """Wherever they stand, a trace's names are shown as they are."""
    every = [words, heading(words), *note_list(words, [words]), fact_table((words, words, words))]

    assert render(every).count(words) == 7
    assert render([table("lr", [(words, words)], (words, words))]).count(words) == 4


def test_what_a_terminal_might_obey_is_replaced() -> None:
    """Escape codes, bells and line breaks within a name."""
    shown = render([fact_table(("a\x1b[2Jb", "1\a", "c\nd\r"))])

    assert shown == "  a\ufffd[2Jb  1\ufffd  c\ufffdd\ufffd\n"


def test_less_time_is_good() -> None:
    """The sign and the colour say the same."""
    assert [(str(change_text(ns, 2)), change_text(ns, 2).style) for ns in (-2e6, 3e6, 0, 1.0)] == [
        ("-2.00", "green"),
        ("+3.00", "red"),
        ("0", ""),
        ("<0.01", "red"),
    ]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the small recording."""
    return write_small_trace(tmp_path_factory.mktemp("terminal"))


def test_a_terminal_gets_colours(trace: Path) -> None:
    """Title bold, gain green, status dim, warnings yellow."""
    shown = on_terminal("whatif", str(trace), WHAT_IF, columns=200)
    lines = shown.split("\x1b[K")[-1].splitlines()

    assert lines[0] == f"\x1b[1m{WHAT_IF}\x1b[0m"
    assert re.search(r"\x1b\[32m1\.7\dx as fast *\x1b\[0m", shown)
    assert "\x1b[2m(unvalidated)\x1b[0m" in shown
    assert "\x1b[33mthe step was measured under the profiler" in shown
    assert any(CODE.sub("", line).startswith("  kernel") for line in lines)


def test_no_color_is_respected(trace: Path) -> None:
    """https://no-color.org: no colour whatever the terminal can do."""
    shown = on_terminal("whatif", str(trace), WHAT_IF, NO_COLOR="1")

    assert not re.search(r"\x1b\[[\d;]*3[0-7]m", shown)


def test_a_narrow_terminal_cuts_no_number(trace: Path) -> None:
    """Words are folded and notes wrapped; every number of the wide report is still there."""
    wide, narrow = (
        CODE.sub("", on_terminal("whatif", str(trace), WHAT_IF, columns=columns))
        for columns in (200, 40)
    )
    numbers = re.compile(r"\d+\.\d+")

    assert sorted(numbers.findall(narrow)) == sorted(numbers.findall(wide))
    assert max(map(len, narrow.split("\x1b[K")[-1].splitlines())) <= 40
    assert len(narrow.splitlines()) > len(wide.splitlines())


def test_no_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever variables ask for: what is written to a file is the same everywhere."""
    plain = as_text(PREDICTION)
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "20"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)

    assert as_text(PREDICTION) == plain
    assert "\x1b" not in plain
