"""Text of logs in, rows out: line, step, loss, learning rate, and what the step counts.

A loss or learning rate that is unknown is None.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

from foretrace.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Row = tuple[int, float, float | None, float | None, str]

STEPS, EPOCHS, ROWS = "steps", "epochs", "losses"
"""What the number of a row counts; where it has none, rows with a loss are counted."""
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
_BAR = re.compile(r"[|\[] *(\d+)/(\d+) *[\[(]")
_WITH_OTHERS = re.compile(r"(?:val|valid|validation|eval|test|dev)[ _/]loss", re.IGNORECASE)


def csv_rows(text: str) -> list[Row] | None:
    r"""Return the rows of a CSV, or None where *text* is something else.

    The first line names columns, or everything is numbers: losses, or steps and losses.

    >>> csv_rows("step,loss\n10,2.5\n"), csv_rows("2.5\n2.25\n")[1], csv_rows("step 1 loss 2")
    ([(2, 10.0, 2.5, None, 'steps')], (2, 2.0, 2.25, None, 'losses'), None)

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
    names = [cell.lower().rpartition(" - ")[2] for cell in table[0][1]]
    if all(_is_number(cell) for cell in names):
        return _bare_rows(table)
    _check_names(names)
    columns = [_column(names, known) for known in (STEP_NAMES, LOSS_NAMES, RATE_NAMES)]
    if columns[1] is None:
        if comma in lines[0][1] and len(names) > 1 and not _LOSS.search(text):
            raise RefusedError(f"line {lines[0][0]}: no column is called loss: {', '.join(names)}")
        return None
    counts = _counted(None if columns[0] is None else names[columns[0]])
    return [
        (*_named_row(line, number, cells, columns), counts)
        for number, (line, cells) in enumerate(table[1:], 1)
    ]


def json_rows(found: Any) -> list[Row]:
    """Return the rows of a trainer's ``log_history``, or of a list of objects or numbers.

    >>> json_rows({"log_history": [{"step": 5, "loss": 2.0}, {"step": 5, "eval_loss": 2.1}]})
    [(1, 5.0, 2.0, None, 'steps'), (2, 5.0, None, None, 'steps')]

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

    So are lines that name another loss beside, where most do not: evaluations on the way.

    >>> printed_rows("hello\nEpoch [2/9], Step [10/50], Loss: 0.5\n{'loss': 0.4, 'epoch': 2.1}")
    [(2, 60.0, 0.5, None, 'steps'), (3, 2.0, 0.4, None, 'losses')]
    """
    found = [
        (line, words, loss)
        for line, words in enumerate(text.splitlines(), 1)
        if SUMMARY not in words and (loss := _LOSS.search(words))
    ]
    plain = [one for one in found if not _WITH_OTHERS.search(one[1])]
    is_mixed = len(plain) > len(found) / 2
    rows: list[Row] = []
    for line, words, loss in plain if is_mixed else found:
        step, counts = _printed_step(words, len(rows) + 1)
        rate = _RATE.search(words)
        rows.append((line, step, float(loss[1]), float(rate[1]) if rate else None, counts))
    return rows


def _printed_step(words: str, row: int) -> tuple[float, str]:
    """Return the step a line names, and what that counts: the *row* where it names none.

    Steps that count within an epoch go on from epoch to epoch.
    """
    epoch, step = _EPOCH.search(words), _STEP.search(words) or _BAR.search(words)
    if step and step[2] and epoch:
        return float((int(epoch[1]) - 1) * int(step[2]) + int(step[1])), STEPS
    if step:
        return float(step[1]), STEPS
    return (float(epoch[1]), EPOCHS) if epoch else (float(row), ROWS)


def _cells(line: str, comma: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=comma, strict=False))]
    except csv.Error as error:
        raise RefusedError(f"no log of losses ({error})") from None


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
        step, counts = (values[0], STEPS) if len(values) > 1 else (float(number), ROWS)
        rows.append((line, step or 0.0, values[-1], None, counts))
    return rows


def _named_row(
    line: int, number: int, cells: Sequence[str], columns: Sequence[int | None]
) -> tuple[int, float, float | None, float | None]:
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
        return number, float(number), float(entry), None, ROWS
    if not isinstance(entry, dict):
        raise RefusedError(f"entry {number} is neither an object nor a number")
    if SUMMARY in entry:
        return number, float(number), None, None, ROWS
    step, loss, rate = (
        next(_numbers(number, entry, known), None) for known in (STEP_NAMES, LOSS_NAMES, RATE_NAMES)
    )
    name = next((name for name in STEP_NAMES if entry.get(name) is not None), None)
    return number, float(number) if step is None else step, loss, rate, _counted(name)


def _counted(name: str | None) -> str:
    """Return what a column or key called *name* counts."""
    return ROWS if name is None else EPOCHS if name == "epoch" else STEPS


def _check_names(names: Sequence[str]) -> None:
    twice = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
    if twice:
        raise RefusedError(f"two columns are called {twice[0]!r}; rename one")


def _numbers(number: int, entry: Mapping[str, Any], known: Sequence[str]) -> Iterator[float]:
    for name in known:
        value = entry.get(name)
        if isinstance(value, str) and _is_number(value):
            value = float(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise RefusedError(f"entry {number}: {name} is {value!r}, expected a number")
        if value is not None:
            yield float(value)
