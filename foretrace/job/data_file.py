"""Numbers that a user gives: an array of NumPy, JSON, a table, or lines that a training printed.

In: a file; its content says what it is, never its suffix. Out: an array or a text, and of a text
the entries of JSON, rows of a table, or lines. What the numbers in them mean says who asks.
"""

from __future__ import annotations

import csv
import io
import json
from contextlib import contextmanager
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import RefusedError
from foretrace.util.exhaustion import within_means
from foretrace.util.limits import LOG_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

NUMPY = b"\x93NUMPY"
LARGEST = 1e9

Line = tuple[int, str]
Cells = tuple[int, list[str]]
Entry = tuple[int, dict[str, Any]]
"""Each after its number in the file, from 1: a line, its cells, or what an object says by name."""


def read_content(path: Path, wanted: str) -> npt.NDArray[Any] | str:
    """Return the array or the text in *path*; *wanted* says what an empty file should hold.

    Raises
    ------
    RefusedError
        The file cannot be read, is empty or too large, or holds neither.
    """
    raw = _bytes(path)
    try:
        if raw.startswith(NUMPY):
            return np.load(io.BytesIO(raw), allow_pickle=False)
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedError("is neither text in UTF-8 nor an array of NumPy") from None
    except (ValueError, OSError, EOFError, OverflowError, SyntaxError, TokenError) as error:
        reason = " ".join(str(error).split())
        raise RefusedError(f"is no array that can be read ({reason})") from None
    if not text.strip():
        raise RefusedError(f"is empty; give {wanted}")
    return text


def read_rows(path: Path, columns: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Return where each row of the table at *path* stands, in words, and its cells by column.

    There is at least one row, and the table has *columns*, in any order, and maybe others.

    Raises
    ------
    RefusedError
        The file cannot be read, is no such table, or a row has more or fewer cells than columns.
    """
    with name_file(path):
        content = read_content(path, f"a CSV with the columns {', '.join(columns)}")
        if not isinstance(content, str):
            raise RefusedError(f"is no table with the columns {', '.join(columns)}")
        names, rows = read_table(numbered_lines(content), ())
        check_names(names := [name.lower() for name in names])
        if missing := [column for column in columns if column not in names]:
            raise RefusedError(f"there is no column {missing[0]!r}, only {', '.join(names)}")
        if not rows:
            raise RefusedError("there is no row below the names of the columns")
        return [(f"{path}: line {at}", cells) for at, cells in named_rows(names, rows)]


def number_of(row: tuple[str, dict[str, str]], column: str, *, is_whole: bool = False) -> float:
    """Return the number above 0 in a *column* of what `read_rows` returned.

    >>> number_of(("line 2", {"workers": "4"}), "workers", is_whole=True)
    4.0

    Raises
    ------
    RefusedError
        It is no such number.
    """
    place, cells = row
    least = 1.0 if is_whole else 1 / LARGEST
    number = as_number(cells[column])
    if number is None or not least <= number <= LARGEST or (is_whole and number % 1):
        needed = f"a {'whole ' * is_whole}number from {least:g} to {LARGEST:g}"
        raise RefusedError(f"{place}: {column} is {cells[column]!r}; give {needed}")
    return number


@contextmanager
def name_file(path: Path) -> Iterator[None]:
    """Put *path* before what is refused inside."""
    try:
        with within_means("its content", RefusedError):
            yield
    except RefusedError as error:
        raise RefusedError(f"{path}: {error}") from None


def json_entries(text: str) -> list[Entry] | None:
    r"""Return the objects of a JSON log; ``None`` where *text* is something else.

    That is a list, an object with one as its ``log_history``, or an object on every line. A number
    that stands for itself is called ``value``.

    >>> json_entries('{"log_history": [{"step": 5}]}'), json_entries("[2.5]"), json_entries("[x")
    ([(1, {'step': 5})], [(1, {'value': 2.5})], None)

    Raises
    ------
    RefusedError
        ``log_history`` is no list, or something in a list is neither an object nor a number.
    """
    content = _json(text) if text.lstrip().startswith(("{", "[")) else None
    if isinstance(content, dict):
        content = content.get("log_history", [content])
        if not isinstance(content, list):
            raise RefusedError("log_history is no list")
    return None if content is None else [_entry(*each) for each in enumerate(content, 1)]


def numbered_lines(text: str) -> list[Line]:
    r"""Return the lines that say something, numbered; a progress bar begins one with each state.

    >>> numbered_lines("loading\n\n1/9\r2/9")
    [(1, 'loading'), (3, '1/9'), (4, '2/9')]
    """
    return [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]


def read_table(lines: Sequence[Line], bare: Sequence[str]) -> tuple[list[str], list[Cells]]:
    """Return the names of the columns, and the rows below.

    The first of *lines* names the columns and shows what separates them: ``,``, ``;`` or a tab.
    Where it is numbers as all others, these are the last of the columns *bare*.

    >>> read_table([(1, "1,0.5")], ("step", "loss")), read_table([(1, "a;b"), (2, "1;2")], ())
    ((['step', 'loss'], [(1, ['1', '0.5'])]), (['a', 'b'], [(2, ['1', '2'])]))

    Raises
    ------
    RefusedError
        They are no table, some columns lack a name, or two have the same one.
    """
    mark = next((mark for mark in ",;\t" if mark in lines[0][1]), ",")
    try:
        table = [(at, next(csv.reader([line], delimiter=mark))) for at, line in lines]
    except csv.Error as error:
        raise RefusedError(f"no table ({error})") from None
    table = [(at, [cell.strip() for cell in cells]) for at, cells in table]
    (_, names), *rows = table
    if all(as_number(name) is not None for name in names):
        names, rows = list(bare[-len(names) :]), table
        for at, row in rows:
            if len(row) != len(names):
                raise RefusedError(
                    f"line {at}: {len(row)} columns without names; name them in line 1"
                )
    check_names(names)
    return names, rows


def check_names(names: Sequence[str]) -> None:
    """Refuse *names* of columns of which two are the same."""
    if twice := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
        raise RefusedError(f"two columns are called {twice[0]!r}; rename one")


def named_rows(names: Sequence[str], rows: Sequence[Cells]) -> list[Entry]:
    """Return the cells of each row by the name of their column.

    Raises
    ------
    RefusedError
        A row has more or fewer cells than there are columns.
    """
    for at, row in rows:
        if len(row) != len(names):
            raise RefusedError(f"line {at}: {len(row)} values for {len(names)} columns")
    return [(at, dict(zip(names, row, strict=True))) for at, row in rows]


def as_number(value: Any) -> float | None:
    """Return the number that *value* is, or that a text spells.

    >>> as_number("1e3"), as_number(2), as_number(True), as_number("1,5")
    (1000.0, 2.0, None, None)
    """
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _bytes(path: Path) -> bytes:
    most = LOG_BYTES.allowed()
    try:
        with path.open("rb") as file:  # also a pipe, whose size nobody knows
            raw = file.read(most + 1)
    except OSError as error:
        raise RefusedError(f"cannot be read ({error.strerror})") from None
    if len(raw) > most:
        raise RefusedError(f"more than {most:,} bytes are too many for a log")
    return raw


def _json(text: str) -> Any:
    """Return the JSON of a whole text, or of its lines, or ``None``."""
    for read in (json.loads, _json_lines):
        try:
            return read(text)
        except (ValueError, RecursionError):
            continue
    return None


def _json_lines(text: str) -> list[Any]:
    return [json.loads(line) for _, line in numbered_lines(text)]


def _entry(at: int, content: Any) -> Entry:
    if isinstance(content, int | float) and not isinstance(content, bool):
        return at, {"value": content}
    if not isinstance(content, dict):
        raise RefusedError(f"entry {at} is neither an object nor a number")
    return at, content
