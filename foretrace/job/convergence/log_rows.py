"""What a log file holds in, rows out: line, step, loss, learning rate, and what the step counts.

A loss or learning rate that is unknown is None.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from foretrace.errors import RefusedError
from foretrace.job.data_file import (
    as_number,
    check_names,
    json_entries,
    numbered_lines,
    read_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from foretrace.job.data_file import Entry

LossRow = tuple[int, float, float | None, float | None, str]

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
NAMES = (STEP_NAMES, LOSS_NAMES, RATE_NAMES)
SUMMARY = "train_runtime"
"""Trainers of transformers end their log with a mean over all of it, beside this."""
BARE = ("step", "loss")
"""Columns of a table that names none; one of a single column is the loss."""
_NUMBER = r"([-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)\b)"
_IS = r"['\"]?\s*(?:(?:is|=|:|,|\()\s*)?(?:['\"]\s*)?"
_OTHERS = "".join(
    rf"(?<!{name}[ /])"
    for name in ("val", "valid", "validation", "eval", "evaluation", "test", "dev")
)
_LOSS = re.compile(
    rf"{_OTHERS}(?<![a-z_/])(?:train(?:ing)?[ _/]?)?loss{_IS}{_NUMBER}", re.IGNORECASE
)
_RATE = re.compile(rf"(?<![a-z_])(?:lr|learning[ _]rate){_IS}{_NUMBER}", re.IGNORECASE)
_OF = r"['\"]?\s*(?:[:=]\s*)?(?:\[\s*)?#?(\d+)(?:\s*/\s*(\d+))?"
"""No space may be taken by two parts: a line of spaces would take the cube of its length."""
_STEP = re.compile(rf"(?<![a-z])(?:global[ _])?(?:step|iteration|iter|batch){_OF}", re.IGNORECASE)
_EPOCH = re.compile(rf"(?<![a-z])epoch{_OF}(?![\d.])", re.IGNORECASE)
_BAR = re.compile(r"[|\[] *(\d+)/(\d+) *[\[(]")
_WITH_OTHERS = re.compile(r"(?:val|valid|validation|eval|test|dev)[ _/]loss", re.IGNORECASE)


def array_rows(array: npt.NDArray[Any]) -> list[LossRow]:
    """Return the rows of an array of losses, or of steps and losses.

    Raises
    ------
    RefusedError
        It is an array of something else.
    """
    is_number = array.dtype.kind in "fiu"
    if not is_number or array.ndim not in {1, 2} or array.shape[1:] not in {(), (2,)}:
        raise RefusedError("expected an array of losses, or of the columns step and loss")
    names = BARE[-array.ndim :]
    rows = enumerate(array.reshape(-1, array.ndim).tolist(), 1)
    return _entry_rows("row", [(at, dict(zip(names, row, strict=True))) for at, row in rows])


def text_rows(text: str) -> list[LossRow]:
    r"""Return the rows of JSON, of a table, or of what a training printed.

    >>> text_rows('[{"step": 5, "loss": 2.0}, {"step": 5, "eval_loss": 2.1}]')
    [(1, 5.0, 2.0, None, 'steps'), (2, 5.0, None, None, 'steps')]
    >>> text_rows("step,loss\n10,2.5\n"), text_rows("2.5\n2.25\n")[1]
    ([(2, 10.0, 2.5, None, 'steps')], (2, 2.0, 2.25, None, 'losses'))

    Raises
    ------
    RefusedError
        A step, loss or learning rate is no number, or no column holds losses.
    """
    if (entries := json_entries(text)) is not None:
        return _entry_rows("entry", entries)
    rows = _table_rows(text)
    return printed_rows(text) if rows is None else rows


def _table_rows(text: str) -> list[LossRow] | None:
    """Return the rows of a table, or None where *text* is something else.

    The first line names columns, or everything is numbers: losses, or steps and losses.
    """
    lines = [(at, line) for at, line in numbered_lines(text) if not line.startswith("#")]
    if not lines:
        return None
    columns, rows = read_table(lines, BARE)
    check_names(names := [_plain(name) for name in columns])
    if not set(names) & set(LOSS_NAMES):
        if len(names) > 1 and not _LOSS.search(text):
            raise RefusedError(f"line {lines[0][0]}: no column is called loss: {', '.join(names)}")
        return None
    chosen = [next((n for n in wanted if n in names), "") for wanted in NAMES]
    cells = [(at, dict(zip(names, row, strict=False))) for at, row in rows]
    return _entry_rows("line", [(at, {n: row.get(n) for n in chosen}) for at, row in cells])


def _entry_rows(kind: str, entries: Iterable[Entry]) -> list[LossRow]:
    """Return a row for each of *entries*, whose place in a file is a *kind*: a line, an entry."""
    return [
        (at, *_entry_row(f"{kind} {at}", number, entry))
        for number, (at, entry) in enumerate(entries, 1)
    ]


def _entry_row(
    place: str, number: int, entry: Mapping[str, Any]
) -> tuple[float, float | None, float | None, str]:
    if SUMMARY in entry:
        return float(number), None, None, ROWS
    (counted, step), (_, loss), (_, rate) = (_first_of(place, entry, names) for names in NAMES)
    if step is None:
        return float(number), loss, rate, ROWS
    return step, loss, rate, EPOCHS if counted == "epoch" else STEPS


def _first_of(
    place: str, entry: Mapping[str, Any], names: Sequence[str]
) -> tuple[str, float | None]:
    """Return the first of *names* that has a value, and that value."""
    for name in names:
        if (value := entry.get(name)) not in (None, ""):
            number = as_number(value)
            if number is None:
                raise RefusedError(f"{place}: {name} is {value!r}, expected a number")
            return name, number
    return "", None


def _plain(name: str) -> str:
    """Return a name without the run that it is of, as some loggers write it.

    >>> _plain("my run - Train/Loss")
    'train/loss'
    """
    return name.lower().rpartition(" - ")[2]


def printed_rows(text: str) -> list[LossRow]:
    r"""Return the rows of what a training printed; lines without a loss are passed over.

    So are lines that name another loss beside, where most do not: evaluations on the way.

    >>> printed_rows("hello\nEpoch [2/9], Step [10/50], Loss: 0.5\n{'loss': 0.4, 'epoch': 2.1}")
    [(2, 60.0, 0.5, None, 'steps'), (3, 2.0, 0.4, None, 'losses')]
    """
    lines = [
        (line, words, loss)
        for line, words in numbered_lines(text)
        if SUMMARY not in words and (loss := _LOSS.search(words))
    ]
    plain = [line for line in lines if not _WITH_OTHERS.search(line[1])]
    is_mixed = len(plain) > len(lines) / 2
    rows: list[LossRow] = []
    for line, words, loss in plain if is_mixed else lines:
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
