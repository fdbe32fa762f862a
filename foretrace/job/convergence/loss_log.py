"""Losses that a training logged: a file in, steps, losses and learning rates out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import RefusedError
from foretrace.job.convergence.log_rows import EPOCHS, ROWS, STEPS, array_rows, text_rows
from foretrace.job.data_file import name_file, read_content

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from foretrace.job.convergence.log_rows import LossRow

    Floats = npt.NDArray[np.float64]

MOST_STEPS, LARGEST_LOSS = 1e15, 1e30
"""Beyond them a number is a mistake."""


@dataclass(frozen=True)
class LossLog:
    """What a training logged.

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
    """Read the losses in *path*: a table, an array of NumPy, JSON, or what a training printed.

    Raises
    ------
    RefusedError
        The file cannot be read or holds no losses, a loss is no finite number, or steps go back;
        the text names the file and the line.
    """
    with name_file(path):
        content = read_content(path, "the losses that were logged")
        rows = text_rows(content) if isinstance(content, str) else array_rows(content)
    return loss_log(rows, str(path))


def loss_log(rows: Sequence[LossRow], name: str) -> LossLog:
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
    logged = [row for row in rows if row[2] is not None]
    if not logged:
        raise RefusedError(
            f"{name}: there is no loss in it; give a CSV with the columns step and loss, an NPY, "
            "JSON with log_history, or lines such as 'step 10 loss 2.3'"
        )
    for line, step, loss, rate, _ in logged:
        _check(f"{name}:{line}", step, loss, rate)
    steps = np.array([row[1] for row in logged], np.float64)
    back = np.flatnonzero(np.diff(steps) <= 0)
    if len(back):
        line, step = logged[back[0] + 1][:2]
        raise RefusedError(
            f"{name}:{line}: step {step:g} comes after step {steps[back[0]]:g}; steps must rise: "
            "give one run, each step once"
        )
    losses = np.array([row[2] for row in logged], np.float64)
    later = [row for row in rows if row[2] is None]
    ahead = [(row[1], row[3]) for row in later if row[3] is not None and row[1] > steps[-1]]
    rates = [row[3] for row in logged]
    return LossLog(
        steps,
        losses,
        None if None in rates else np.array(rates, np.float64),
        tuple(ahead),
        len(later) - len(ahead),
        next((unit for unit in (ROWS, EPOCHS) if unit in {row[4] for row in logged}), STEPS),
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
