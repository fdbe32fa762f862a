"""Find the function that a user names: ``file.py:function`` or ``module:function``.

Importing runs the user's own code, and nothing else: the text is never evaluated.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.util.text_file import is_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from foretrace.errors import ForetraceError


def load_target(target: str, what: str, error: type[ForetraceError]) -> Callable[..., Any]:
    """Return the function that *target* names; *what* it should give is for messages.

    Raises
    ------
    error
        The text is malformed, the file, module or function is absent, or importing it fails.

    Examples
    --------
    >>> from foretrace.errors import RecordError
    >>> load_target("os.path:basename", "job", RecordError)("a/b")
    'b'
    """
    where, colon, name = target.rpartition(":")
    if not (colon and where and name.isidentifier()):
        raise error(f"{target!r} names no {what}: write file.py:function or module:function")
    function = getattr(_imported(where, target, what, error), name, None)
    if not callable(function):
        raise error(f"{where} has no function {name!r}: check the name after the colon")
    return function


def exit_text(error: SystemExit) -> str:
    """Return what a user's code did that ended the program, and what to do instead."""
    return f"sys.exit({error.code!r}); return from the function instead"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, which a user's own class may fail to give."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever that class raises
        text = "(its text cannot be shown)"
    return (text.splitlines() or [""])[0]


def _imported(where: str, target: str, what: str, error: type[ForetraceError]) -> ModuleType:
    path = Path(where)
    if where.endswith(".py") and not is_file(path):
        raise error(f"{path} is no file: give the path of the script that defines the {what}")
    try:
        return _from_file(path) if where.endswith(".py") else importlib.import_module(where)
    except SystemExit as ended:
        text = f"{target}: importing {where} ended the program: {exit_text(ended)}"
        raise error(text) from None
    except Exception as failed:
        text = f"{type(failed).__name__}: {first_line(failed)}"
        raise error(f"{target}: importing {where} failed: {text}") from failed


def _from_file(path: Path) -> ModuleType:
    """Import *path*, its folder on the search path as when Python runs the file."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    stem = f"_{path.stem}" if _is_taken(path) else path.stem
    spec = importlib.util.spec_from_file_location(stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module  # loader workers and dataclasses look the module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(stem, None)
        raise
    return module


def _is_taken(path: Path) -> bool:
    """Whether another module has the name of *path*: a file json.py must not hide Python's own."""
    other = sys.modules.get(path.stem)
    return path.stem in sys.stdlib_module_names or (
        other is not None
        and Path(getattr(other, "__file__", None) or "").resolve() != path.resolve()
    )
