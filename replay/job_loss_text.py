"""Text of logs in, rows out: (line, step, loss, learning rate), unknown ones None."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

from foretrace.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Row = tuple[int, float, float | None, float | None]

STEP_NAMES = ("step", "global_step", "steps", "iteration", "iter", "k", "epoch")
LOSS_NAMES = (
    "loss",
    "train_loss",
    "train/loss",
    "training_loss",
    "training loss",
    "train loss",
    "value",
)
RATE_NAMES = ("lr", "learning_rate", "learning rate", "train/learning_rate", "rate")
SUMMARY = "train_runtime"
"""Trainers of transformers end their log with a mean over all of it, beside this."""
_NUMBER = r"([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)\b)"
_IS = r"['\"]?\s*(?:is|=|:|,|\()?\s*['\"]?\s*"
_OTHERS = "".join(
    rf"(?<!{name}[ /])"
    for name in ("val", "valid", "validation", "eval", "evaluation", "test", "dev")
)
_LOSS = re.compile(
    rf"{_OTHERS}(?<![a-z_/])(?:train(?:ing)?[ _/]?)?loss{_IS}{_NUMBER}", re.IGNORECASE
)
_RATE = re.compile(rf"(?<![a-z_])(?:lr|learning[ _]rate){_IS}{_NUMBER}", re.IGNORECASE)
_OF = r"['\"]?\s*[:=]?\s*\[?\s*#?(\d+)(?:\s*/\s*(\d+))?"
_STEP = re.compile(rf"(?<![a-z])(?:global[ _])?(?:step|iteration|iter|batch){_OF}", re.IGNORECASE)
_EPOCH = re.compile(rf"(?<![a-z])epoch{_OF}(?![\d.])", re.IGNORECASE)


def csv_rows(text: str) -> list[Row] | None:
    r"""Return the rows of a CSV, or None where *text* is something else.

    The first line names columns, or everything is numbers: losses, or steps and losses.

    >>> csv_rows("step,loss\n10,2.5\n"), csv_rows("2.5\n2.25\n")[1], csv_rows("step 1 loss 2")
    ([(2, 10.0, 2.5, None)], (2, 2.0, 2.25, None), None)

    Raises
    ------
    RefusedError
        A cell is no number, or the first line has no column of losses.
    """
    numbered = enumerate(text.splitlines(), 1)
    lines = [(n, line) for n, line in numbered if line.strip() and not line.startswith("#")]
    if not lines:
        return None
    comma = next((c for c in ",;\t" if c in lines[0][1]), ",")
    table = [(n, _cells(line, comma)) for n, line in lines]
    names = [cell.lower() for cell in table[0][1]]
    if all(_is_number(cell) for cell in names):
        return _bare_rows(table)
    columns = [_column(names, known) for known in (STEP_NAMES, LOSS_NAMES, RATE_NAMES)]
    if columns[1] is None:
        if comma in lines[0][1] and len(names) > 1 and not _LOSS.search(text):
            raise RefusedError(f"line {lines[0][0]}: no column is called loss: {', '.join(names)}")
        return None
    return [
        _named_row(line, number, cells, columns)
        for number, (line, cells) in enumerate(table[1:], 1)
    ]


def json_rows(found: Any) -> list[Row]:
    """Return the rows of a trainer's ``log_history``, or of a list of objects or numbers.

    >>> json_rows({"log_history": [{"step": 5, "loss": 2.0}, {"step": 5, "eval_loss": 2.1}]})
    [(1, 5.0, 2.0, None), (2, 5.0, None, None)]

    Raises
    ------
    RefusedError
        It is neither.
    """
    entries = found.get("log_history", [found]) if isinstance(found, dict) else found
    if not isinstance(entries, list):
        raise RefusedError("log_history is no list")
    return [_entry_row(number, entry) for number, entry in enumerate(entries, 1)]


def printed_rows(text: str) -> list[Row]:
    r"""Return the rows of what a training printed; lines without a loss are passed over.

    >>> printed_rows("hello\nEpoch [2/9], Step [10/50], Loss: 0.5\n{'loss': 0.4, 'epoch': 2.1}")
    [(2, 60.0, 0.5, None), (3, 2.0, 0.4, None)]
    """
    rows: list[Row] = []
    for line, words in enumerate(text.splitlines(), 1):
        if SUMMARY not in words and (loss := _LOSS.search(words)):
            rate = _RATE.search(words)
            step = _printed_step(words)
            number = len(rows) + 1.0 if step is None else step
            rows.append((line, number, float(loss[1]), float(rate[1]) if rate else None))
    return rows


def _printed_step(words: str) -> float | None:
    """Return the step a line names; steps that count within an epoch go on from epoch to epoch."""
    step, epoch = _STEP.search(words), _EPOCH.search(words)
    if step and step[2] and epoch:
        return float((int(epoch[1]) - 1) * int(step[2]) + int(step[1]))
    found = step or epoch
    return float(found[1]) if found else None


def _cells(line: str, comma: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=comma, strict=False))]


def _is_number(cell: str) -> bool:
    return re.fullmatch(_NUMBER, cell, re.IGNORECASE) is not None


def _column(names: Sequence[str], known: Sequence[str]) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def _bare_rows(table: Sequence[tuple[int, Sequence[str]]]) -> list[Row]:
    rows: list[Row] = []
    for number, (line, cells) in enumerate(table, 1):
        values = [_value(line, "number", cell) for cell in cells]
        if len(values) > 2 or len(cells) != len(table[0][1]):  # noqa: PLR2004 - step and loss
            raise RefusedError(f"line {line}: {len(values)} columns without names, expected 1 or 2")
        step = values[0] if len(values) > 1 else float(number)
        rows.append((line, step or 0.0, values[-1], None))
    return rows


def _named_row(line: int, number: int, cells: Sequence[str], columns: Sequence[int | None]) -> Row:
    step, loss, rate = (
        None if at is None else _value(line, name, cells[at] if at < len(cells) else "")
        for at, name in zip(columns, ("step", "loss", "learning rate"), strict=True)
    )
    return line, float(number) if step is None else step, loss, rate


def _value(line: int, name: str, cell: str) -> float | None:
    if not cell:
        return None
    if not _is_number(cell):
        raise RefusedError(f"line {line}: the {name} is {cell!r}, expected a number")
    return float(cell)


def _entry_row(number: int, entry: Any) -> Row:
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        return number, float(number), float(entry), None
    if not isinstance(entry, dict):
        raise RefusedError(f"entry {number} is neither an object nor a number")
    if SUMMARY in entry:
        return number, float(number), None, None
    step, loss, rate = (
        next(_numbers(number, entry, known), None) for known in (STEP_NAMES, LOSS_NAMES, RATE_NAMES)
    )
    return number, float(number) if step is None else step, loss, rate


def _numbers(number: int, entry: Mapping[str, Any], known: Sequence[str]) -> Iterator[float]:
    for name in known:
        value = entry.get(name)
        if isinstance(value, str) and _is_number(value):
            value = float(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise RefusedError(f"entry {number}: {name} is {value!r}, expected a number")
        if value is not None:
            yield float(value)
