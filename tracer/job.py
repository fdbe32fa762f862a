"""What is recorded: one training job, given as a `Job`, found by the text a user types."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType


@dataclass(frozen=True)
class Job:
    """One training job.

    ``step`` runs one whole iteration and takes no argument, or the batch when there is a
    ``loader``: fetching it is then part of the step. Everything else is optional and makes the
    recording say more: ``model`` gives module names, ``optimizer`` its kind and size.
    ``batch_size`` counts samples per step. ``device`` is found out when it is ``None``.
    """

    step: Callable[..., object]
    model: Any = None
    optimizer: Any = None
    batch_size: int | None = None
    loader: Any = None
    name: str = "job"
    device: str | None = None

    @property
    def uses_cuda(self) -> bool:
        """Whether steps leave work on a GPU, so that timing has to wait for it."""
        if self.device is not None:
            return self.device.startswith("cuda")
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return False
        parameters = [] if self.model is None else list(self.model.parameters())
        return any(p.is_cuda for p in parameters) if parameters else torch.cuda.is_initialized()


def runner(job: Job) -> Callable[[], None]:
    """Return a function that runs one iteration of *job*, fetching of the batch included.

    A loader that runs out is started again, as a training loop does between epochs.
    """
    if job.loader is None:
        return lambda: _discard(job.step())
    batches = _endless(job)
    return lambda: _discard(job.step(next(batches)))


def _discard(_result: object) -> None:
    """Drop what a step returns."""


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


def load_job(target: str) -> Job:
    """Return the job that *target* names: ``"file.py:function"`` or ``"module:function"``.

    Raises
    ------
    RecordError
        The text is malformed, the file or function is absent, or what it returns is no `Job`.
    """
    where, colon, name = target.rpartition(":")
    if not (colon and where and name.isidentifier()):
        raise RecordError(f"{target!r} names no job: write file.py:function or module:function")
    function = getattr(_module(where, target), name, None)
    if not callable(function):
        raise RecordError(f"{where} has no function {name!r}: check the name after the colon")
    try:
        job = function()
    except Exception as error:
        raise RecordError(f"{target} failed: {type(error).__name__}: {_line(error)}") from error
    if not isinstance(job, Job):
        raise RecordError(
            f"{target} returned {type(job).__name__}: return a foretrace.tracer.job.Job"
        )
    return job


def _module(where: str, target: str) -> ModuleType:
    try:
        return _from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except RecordError:
        raise
    except Exception as error:
        raise RecordError(
            f"{target}: importing {where} failed: {type(error).__name__}: {_line(error)}"
        ) from error


def _from_file(path: Path) -> ModuleType:
    """Import *path*, its folder on the search path as when Python runs the file."""
    if not path.is_file():
        raise RecordError(f"{path} is no file: give the path of the script that defines the job")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # loader workers and dataclasses look the module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(path.stem, None)
        raise
    return module


def _line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return (str(error).splitlines() or [""])[0]
