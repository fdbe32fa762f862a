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

    def __post_init__(self) -> None:
        """Refuse what could only fail later, in the middle of a recording."""
        size = self.batch_size
        whole = isinstance(size, int) and not isinstance(size, bool)
        mistakes = {
            "step must be callable": not callable(self.step),
            "batch_size must be a whole number from 1 on": size is not None
            and not (whole and size >= 1),
            "model must be a torch.nn.Module": not _is_a(self.model, "parameters", "modules"),
            "optimizer must be a torch optimizer": not _is_a(self.optimizer, "param_groups")
            and not _is_a(self.optimizer, "optimizer"),  # the latter wraps one
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


def runner(job: Job) -> Callable[[], None]:
    """Return a function that runs one iteration of *job*, fetching of the batch included.

    A loader that runs out is started again, as a training loop does between epochs.
    """
    batches = None if job.loader is None else _endless(job)

    def run() -> None:
        try:
            if batches is None:
                job.step()
            else:
                job.step(next(batches))
        except SystemExit as error:
            raise RecordError(f"a step of {job.name!r} ended the program: {_exit(error)}") from None

    return run


def _exit(error: SystemExit) -> str:
    return f"sys.exit({error.code!r}); return from the function instead"


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
    except RecordError:
        raise
    except SystemExit as error:
        raise RecordError(f"{target} ended the program: {_exit(error)}") from None
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
    except SystemExit as error:
        raise RecordError(
            f"{target}: importing {where} ended the program: {_exit(error)}"
        ) from None
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
