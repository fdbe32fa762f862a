"""An error in, one line on standard error and an exit code out; no traceback is ever printed."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, TextIO

from foretrace.errors import ForetraceError
from foretrace.util.import_target import first_line

INTERRUPTED = 130
"""Exit code of a program that the user stopped, by the shell's custom."""


def exit_code(error: BaseException) -> int:
    """Say what went wrong and return the exit code; an exit that was asked for goes on.

    Raises
    ------
    SystemExit
        The error is one, of its own accord.
    """
    if isinstance(error, ForetraceError):
        return _fail(str(error), 1)
    if isinstance(error, BrokenPipeError):
        return _stop_writing()
    if isinstance(error, SystemExit):
        if isinstance(error.__context__, BrokenPipeError):  # typer turned it into an exit
            return _stop_writing()
        raise error
    if isinstance(error, OSError):
        return _fail(_describe_os_error(error), 1)
    if isinstance(error, KeyboardInterrupt):
        return interrupt()
    return _explain_unexpected(error)


def interrupt() -> int:
    """Say that the user stopped the program, and return its exit code."""
    return _fail("interrupted", INTERRUPTED)


def open_nowhere() -> TextIO:
    """Return a stream that keeps nothing."""
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


def _stop_writing() -> int:
    """Write nothing more: whoever read the output, such as ``head``, has seen enough."""
    sys.stdout = open_nowhere()
    return 0


def _explain_unexpected(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(f"{error.ctx.get_help()}\n")
        return 0
    if hasattr(error, "format_message"):  # a usage error of click, whichever copy typer uses
        return _fail(f"{error.format_message()} (see foretrace --help)", 2)
    if type(error).__name__ == "Abort" or isinstance(error.__cause__, KeyboardInterrupt):
        return interrupt()
    if os.environ.get("FORETRACE_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, MemoryError):
        return _fail("this needs more memory than there is here", 1)
    if isinstance(error, RecursionError):
        return _fail("something in what was given is nested too deeply", 1)
    kind = type(error).__name__
    return _fail(
        f"internal error, {kind}: {first_line(error)}; please report it with the command and the "
        "trace (FORETRACE_DEBUG=1 shows where)",
        1,
    )


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"foretrace: {_one_line(text)}\n")
    return code


def _one_line(text: object) -> str:
    r"""Return *text* in one line, without what a terminal might obey.

    >>> _one_line("no such\nfile: \x1b[31mred.csv")
    'no such file: \ufffd[31mred.csv'
    >>> _one_line("\udce4.csv")
    '\udce4.csv'
    """
    words = " ".join(str(text).split())
    return "".join(char if _is_harmless(char) else "\ufffd" for char in words)


def _is_harmless(char: str) -> bool:
    is_half = "\ud800" <= char <= "\udfff"  # of a name that is no UTF-8: written with backslashes
    return char.isprintable() or is_half


def _describe_os_error(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason
