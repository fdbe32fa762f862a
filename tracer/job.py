"""What is recorded: one training job, given as a `Job`, found by the text a user types."""

from __future__ import annotations

import inspect
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError
from foretrace.util.import_target import exit_text, first_line, load_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


@dataclass(frozen=True)
class Job:
    """One training job.

    ``step`` runs one whole iteration and takes no argument, or the batch when there is a
    ``loader``: fetching it is then part of the step. Everything else is optional and makes the
    recording say more: ``model`` gives module names, ``optimizer``, one or a list of them, its
    kind and size.
    ``batch_size`` counts samples per step. ``device`` is found out when it is ``None``.
    """

    step: Callable[..., object]
    model: Any = None
    optimizer: Any = None
    batch_size: int | None = None
    loader: Any = None
    name: str = "job"
    device: str | None = None

    def __post_init__(self) -> None:
        """Refuse what could only fail later, in the middle of a recording."""
        size = self.batch_size
        whole = isinstance(size, int) and not isinstance(size, bool)
        mistakes = {
            "step must be callable": not callable(self.step),
            "batch_size must be a whole number from 1 on": size is not None
            and not (whole and size >= 1),
            "model must be a torch.nn.Module": not _is_a(self.model, "parameters", "modules"),
            "optimizer must be a torch optimizer": not all(
                hasattr(each, "param_groups") or hasattr(each, "optimizer")  # the latter wraps one
                for each in optimizers_of(self.optimizer)
            ),
            "loader must be iterable": not _is_a(self.loader, "__iter__"),
        }
        for mistake, is_made in mistakes.items():
            if is_made:
                raise RecordError(f"job {self.name!r}: {mistake}")

    @property
    def uses_cuda(self) -> bool:
        """Whether steps leave work on a GPU, so that timing has to wait for it."""
        if self.device is not None:
            return str(self.device).startswith("cuda")
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return False
        parameters = [] if self.model is None else list(self.model.parameters())
        return any(p.is_cuda for p in parameters) if parameters else torch.cuda.is_initialized()


def optimizers_of(given: Any) -> tuple[Any, ...]:
    """Return the optimizers that a job was *given*: none, one, or several.

    >>> optimizers_of(None), optimizers_of("adam"), optimizers_of(["of D", "of G"])
    ((), ('adam',), ('of D', 'of G'))
    """
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def runner(
    job: Job, fetching: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Callable[[], None]:
    """Return a function that runs one iteration of *job*, fetching of the batch included.

    A loader that runs out is started again, as a training loop does between epochs. Batches are
    fetched inside of what *fetching* gives.
    """
    batches = None if job.loader is None else _endless(job)

    def run() -> None:
        try:
            if batches is None:
                job.step()
            else:
                with fetching():
                    batch = next(batches)
                job.step(batch)
        except SystemExit as error:
            raise RecordError(
                f"a step of {job.name!r} ended the program: {exit_text(error)}"
            ) from None

    return run


def _is_a(value: Any, *attributes: str) -> bool:
    """Tell whether *value* is None or has all *attributes*; torch itself is not imported."""
    return value is None or all(hasattr(value, name) for name in attributes)


def _endless(job: Job) -> Iterator[Any]:
    while True:
        is_empty = True
        for batch in job.loader:
            is_empty = False
            yield batch
        if is_empty:
            raise RecordError(
                f"the loader of {job.name!r} gave no batch: pass one that can be iterated again"
            )


def load_job(target: str, **arguments: object) -> Job:
    """Return the job that *target* names: ``"file.py:function"`` or ``"module:function"``.

    The function is called with *arguments*.

    Raises
    ------
    RecordError
        The text is malformed, the file or function is absent, it takes no such arguments, or what
        it returns is no `Job`.
    """
    function = load_target(target, "job", RecordError)
    for given in arguments:
        check_accepts(target, given)
    try:
        job = function(**arguments)
    except RecordError:
        raise
    except SystemExit as error:
        raise RecordError(f"{target} ended the program: {exit_text(error)}") from None
    except Exception as error:
        raise RecordError(
            f"{target} failed: {type(error).__name__}: {first_line(error)}"
        ) from error
    if not isinstance(job, Job):
        raise RecordError(f"{target} returned {type(job).__name__}: return a foretrace.Job")
    return job


def check_accepts(target: str, keyword: str) -> None:
    """Raise `RecordError` where the function that *target* names takes no such *keyword*."""
    if not accepts(load_target(target, "job", RecordError), keyword):
        raise RecordError(
            f"{target} takes no keyword {keyword}: let the function have {keyword}=... and "
            "build the job accordingly"
        )


def accepts(function: Callable[..., object], keyword: str) -> bool:
    """Tell whether *function* can be called with *keyword*."""
    parameters = inspect.signature(function).parameters
    return any(
        p.kind is p.VAR_KEYWORD
        or (name == keyword and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        for name, p in parameters.items()
    )
