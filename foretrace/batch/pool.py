"""Where items are worked out: joblib on this machine's cores, or on a Dask or Ray cluster.

joblib schedules; here stands only what happens when a worker dies: what was not finished is tried
again in halves, until the item that kills its worker is alone and becomes a failed row.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from foretrace.batch.worker import evaluate, failed_row
from foretrace.errors import TransformError
from foretrace.tracer.child_process import end_with
from foretrace.util.import_target import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from foretrace.batch.items import Item
    from foretrace.batch.rows import Row

    Unit = tuple[Item, ...]

UNIT = 8
"""Items of one recording that a worker takes at once: it reads the recording for all of them."""
PORTION = 32
"""Units after which results are kept, where a backend does not give them one by one."""
CONNECT_SECONDS = 10
NEEDED = {"loky": "joblib", "dask": "distributed", "ray": "ray"}
"""What each backend needs."""


def group_by_recording(items: Sequence[Item]) -> list[Unit]:
    """Return *items* in order, those of one recording together, `UNIT` at most."""
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(item.recording, []).append(item)
    return [
        tuple(group[at : at + UNIT])
        for group in groups.values()
        for at in range(0, len(group), UNIT)
    ]


def evaluate_all(waiting: Sequence[Unit], jobs: int, backend: str) -> Iterator[Row]:
    """Yield the row of every item as it finishes, on *jobs* workers of *backend*, which is open."""
    left = {item.key: item for unit in waiting for item in unit}
    try:
        for row in _results(waiting, jobs, backend):
            del left[row.key]
            yield row
    except Exception as error:  # noqa: BLE001 - each backend has its own for a dead worker
        if len(left) == 1:
            (item,) = left.values()
            yield failed_row(item, f"its worker died: {_reason(error)}")
            return
        rest = list(left.values())
        for half in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
            yield from evaluate_all(group_by_recording(half), jobs, backend)


def _results(waiting: Sequence[Unit], jobs: int, backend: str) -> Iterator[Row]:
    """Yield rows as they finish; by portions on Ray, whose backend for joblib returns lists."""
    from joblib import Parallel, delayed

    if backend != "ray":  # pragma: no branch
        work = Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered")
        yield from chain.from_iterable(work(delayed(evaluate)(unit) for unit in waiting))
        return
    with Parallel(n_jobs=jobs, batch_size=1) as work:  # pragma: no cover - Ray may be absent
        for at in range(0, len(waiting), PORTION):
            portion = waiting[at : at + PORTION]
            yield from chain.from_iterable(work(delayed(evaluate)(unit) for unit in portion))


def all_cores() -> int:
    """Return how many workers the cores of this machine suffice for; two where there is one.

    A single one would be this process itself, which an item could take down.
    """
    return max(2, int(_import_library("joblib", "loky").cpu_count()))


@contextmanager
def open_workers(backend: str, address: str | None) -> Iterator[None]:
    """Let joblib use *backend*, "loky", "dask" or "ray", at *address*, while this is open.

    Raises
    ------
    TransformError
        A library is missing, or nobody answers at *address*.
    """
    joblib = _import_library("joblib", backend)
    _import_library(NEEDED[backend], backend)
    with _OPEN[backend](address), joblib.parallel_config(backend, **_settings(backend)):
        yield


def _settings(backend: str) -> dict[str, Any]:
    """Let workers of this machine end with this process, also where it is killed."""
    return {"initializer": end_with, "initargs": (os.getpid(),)} if backend == "loky" else {}


def _import_library(name: str, backend: str) -> Any:
    """Return a library, or say how to get it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        what = "'foretrace[batch]'" if error.name == "joblib" else error.name
        raise TransformError(f"batch on {backend} needs {error.name}: pip install {what}") from None


@contextmanager
def _here(_address: str | None) -> Iterator[None]:
    yield


@contextmanager
def _dask(address: str | None) -> Iterator[None]:
    distributed = import_module("distributed")
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise TransformError(f"no Dask scheduler answers at {address}: {_reason(error)}") from None
    with client:
        if not client.scheduler_info()["workers"]:
            raise TransformError(f"the Dask scheduler at {address} has no workers; start some")
        yield


@contextmanager
def _ray(address: str | None) -> Iterator[None]:  # pragma: no cover - Ray may be absent
    ray = import_module("ray")
    try:
        _connect(str(address))
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise TransformError(f"no Ray cluster answers at {address}: {_reason(error)}") from None
    import_module("ray.util.joblib").register_ray()
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    """Connect and leave where *address* has a port: Ray itself tries for minutes."""
    place = urlsplit("//" + address.rpartition("://")[2])
    if place.port is not None:
        socket.create_connection((place.hostname or "", place.port), CONNECT_SECONDS).close()


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


_OPEN: dict[str, Callable[[str | None], Any]] = {"loky": _here, "dask": _dask, "ray": _ray}
