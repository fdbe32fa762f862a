"""Losses that a training logged: a file in, steps, losses and learning rates out.

A file is an array of numpy, a CSV, JSON (``log_history`` of a trainer, a list, or an object a line)
or what a training prints. The content decides, never the suffix.
"""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import RefusedError
from foretrace.job.convergence.log_parser import (
    EPOCHS,
    ROWS,
    STEPS,
    csv_rows,
    json_rows,
    printed_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from foretrace.job.convergence.log_parser import Row

    Floats = npt.NDArray[np.float64]

NUMPY, BYTE_ORDER_MARK = b"\x93NUMPY", b"\xef\xbb\xbf"
JSON_STARTS = (b"{", b"[")
LARGEST_BYTES = 2**30
MOST_STEPS, LARGEST_LOSS = 1e15, 1e30
"""Beyond them a number is a mistake."""


@dataclass(frozen=True)
class LossLog:
    """What is known of a training.

    ``steps`` rise; ``losses`` are finite and as many; ``rates`` are the learning rates, as many,
    or None where the log has none. ``ahead`` are steps with a learning rate and no loss yet: the
    schedule that is still to come. ``passed_over`` counts lines without a training loss.
    ``counts`` says what the steps are: "steps", or "epochs" or "losses" of a log that names none.
    """

    steps: Floats
    losses: Floats
    rates: Floats | None = None
    ahead: tuple[tuple[float, float], ...] = ()
    passed_over: int = 0
    counts: str = STEPS


def read_losses(path: Path) -> LossLog:
    """Read the losses in *path*.

    Raises
    ------
    RefusedError
        The file cannot be read or holds no losses, a loss is no finite number, or steps go back;
        the text names the file and the line.
    """
    raw = _read(path)
    try:
        rows = _rows(raw)
    except RefusedError as error:
        raise RefusedError(f"{path}: {error}") from None
    return loss_log(rows, str(path))


def loss_log(rows: Sequence[Row], name: str) -> LossLog:
    """Return the log made of *rows*; *name* stands in messages.

    Examples
    --------
    >>> loss_log([(1, 10.0, 2.5, None, "steps")], "run").losses.tolist()
    [2.5]

    Raises
    ------
    RefusedError
        As `read_losses` says.
    """
    known = [row for row in rows if row[2] is not None]
    if not known:
        raise RefusedError(
            f"{name}: there is no loss in it; give a CSV with the columns step and loss, an NPY, "
            "JSON with log_history, or lines such as 'step 10 loss 2.3'"
        )
    for line, step, loss, rate, _ in known:
        _check(f"{name}:{line}", step, loss, rate)
    steps = np.array([row[1] for row in known], np.float64)
    back = np.flatnonzero(np.diff(steps) <= 0)
    if len(back):
        line, step = known[back[0] + 1][:2]
        raise RefusedError(
            f"{name}:{line}: step {step:g} comes after step {steps[back[0]]:g}; steps must rise: "
            "give one run, each step once"
        )
    losses = np.array([row[2] for row in known], np.float64)
    later = [row for row in rows if row[2] is None]
    ahead = [(row[1], row[3]) for row in later if row[3] is not None and row[1] > steps[-1]]
    rates = [row[3] for row in known]
    return LossLog(
        steps,
        losses,
        None if None in rates else np.array(rates, np.float64),
        tuple(ahead),
        len(later) - len(ahead),
        next((unit for unit in (ROWS, EPOCHS) if unit in {row[4] for row in known}), STEPS),
    )


def losses_of_steps(path: Path) -> LossLog:
    """Read the losses in *path*, which have to say at which steps they were.

    Raises
    ------
    RefusedError
        As for `read_losses`, and where a log counts its epochs or nothing.
    """
    log = read_losses(path)
    if log.counts != STEPS:
        raise RefusedError(
            f"{path}: the log counts {log.counts} and not steps; give it a column called step"
        )
    return log


def _check(place: str, step: float, loss: float | None, rate: float | None) -> None:
    if loss is None or not math.isfinite(loss):
        raise RefusedError(
            f"{place}: the loss is {loss}: the training broke there, and no later loss follows "
            "from the earlier ones"
        )
    if not 0 <= step <= MOST_STEPS:
        raise RefusedError(f"{place}: the step is {step:g}, expected a number from 0")
    if abs(loss) > LARGEST_LOSS:
        raise RefusedError(f"{place}: the loss is {loss:g}, which is no loss of a training")
    if rate is not None and not 0 <= rate < math.inf:
        raise RefusedError(f"{place}: the learning rate is {rate}, expected a number from 0")


def _read(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        raw = path.read_bytes() if size <= LARGEST_BYTES else b""
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read ({error.strerror})") from None
    if size > LARGEST_BYTES:
        raise RefusedError(f"{path}: {size:,} bytes are too many for a log of losses")
    if not raw.strip():
        raise RefusedError(f"{path}: is empty")
    return raw.removeprefix(BYTE_ORDER_MARK)


def _rows(raw: bytes) -> list[Row]:
    if raw.startswith(NUMPY):
        return _array_rows(raw)
    start = raw.lstrip()
    if start.startswith(JSON_STARTS) and (found := _json(start)) is not None:
        return json_rows(found)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError("is neither text nor an array of numpy") from None
    rows = csv_rows(text)
    return printed_rows(text) if rows is None else rows


def _array_rows(raw: bytes) -> list[Row]:
    try:
        array = np.load(io.BytesIO(raw), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise RefusedError(f"is no array that can be read ({error})") from None
    is_number = isinstance(array, np.ndarray) and array.dtype.kind in "fiu"
    if not is_number or array.ndim not in {1, 2} or (array.ndim == 2 and array.shape[1] != 2):  # noqa: PLR2004 - step and loss
        raise RefusedError("expected an array of losses, or of the columns step and loss")
    counts = ROWS if array.ndim == 1 else STEPS
    if array.ndim == 1:
        array = np.stack([np.arange(1, len(array) + 1), array], axis=1)
    return [(row, float(k), float(loss), None, counts) for row, (k, loss) in enumerate(array, 1)]


def _json(start: bytes) -> Any:
    """Return the JSON of a whole file, or of its lines, or None."""
    try:
        return json.loads(start)
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in start.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
