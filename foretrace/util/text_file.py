"""A short file of text, and TOML in it, as a person may have written it or a stranger.

A byte-order mark is left out; a pipe, a file of megabytes, and keys or lists within hundreds of
others are refused before they take memory.
"""

from __future__ import annotations

import os
import re
import tomllib
from typing import TYPE_CHECKING, Any

from foretrace.util.exhaustion import within_means
from foretrace.util.limits import TEXT_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.errors import ForetraceError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MOST_PARTS = 64
"""Of a dotted key; reading one takes the square of its parts."""
_STRING = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\\?\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]++|\\[^\n])*+["\\]?'
    r"|'[^'\n]*+'?|#[^\n]*",
    re.DOTALL,
)
"""Of TOML, and comments; one that does not end goes to the end, where reading stops as well."""
_DOTTED = re.compile(r"[\w-]+(?:[ \t]*\.[ \t]*[\w-]+)*")


def is_file(path: str | Path) -> bool:
    """Tell whether *path* is a regular file; a name that no file can have is none."""
    return os.path.isfile(path)  # noqa: PTH113 - `Path.is_file` raises where a name is too long


def read_text(path: Path, error: type[ForetraceError]) -> str:
    """Return the text of the file at *path*.

    Raises
    ------
    error
        It is no regular file, too large, no text in UTF-8, or cannot be read.
    """
    try:
        if path.is_dir():
            raise error(f"{path}: cannot be read (Is a directory)")
        if path.exists() and not path.is_file():
            raise error(f"{path}: no regular file")
        size = path.stat().st_size
        TEXT_BYTES.check(size, str(path), error)
        return path.read_bytes().removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError:
        raise error(f"{path}: no text in UTF-8") from None
    except OSError as failed:
        raise error(f"{path}: cannot be read ({failed.strerror})") from None


def parse_toml(text: str, where: str, error: type[ForetraceError]) -> dict[str, Any]:
    """Return the tables in *text*; *where* it stood is for messages.

    Raises
    ------
    error
        It is no TOML, or nested without end.

    Examples
    --------
    >>> from foretrace.errors import TransformError
    >>> parse_toml("a.b = 1", "x.toml", TransformError)
    {'a': {'b': 1}}
    """
    parts = max(
        (match[0].count(".") for match in _DOTTED.finditer(_STRING.sub("q", text))), default=0
    )
    if parts >= MOST_PARTS:
        raise error(f"{where}: a key has more than {MOST_PARTS} parts")
    try:
        with within_means(where, error):
            return tomllib.loads(text)
    except (ValueError, OverflowError) as failed:
        if isinstance(failed, error):
            raise
        raise error(f"{where}: {failed}") from None
