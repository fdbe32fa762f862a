"""A study file in, a table of results out: many jobs times many what-ifs, on all cores.

What takes time is done once: every item's row lies in a file of its own as soon as it is known, and
a batch that was killed goes on where it stopped. Nothing here schedules; joblib does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.batch.config import read_study, scenario_texts
from foretrace.batch.items import drop_repeats, list_items
from foretrace.batch.measure import measure_items
from foretrace.batch.pool import all_cores, evaluate_all, group_by_recording, open_workers
from foretrace.batch.progress import progress
from foretrace.batch.rows import ITEMS, TABLE, read_stored, store, write_rows
from foretrace.errors import TransformError
from foretrace.util.atomic_write import sweep

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.batch.config import Study
    from foretrace.batch.items import Item
    from foretrace.batch.rows import Row


@dataclass(frozen=True)
class Batch:
    """What became of a study: a row per item, in its order, and where the table lies.

    ``known`` counts the rows that an earlier run had left, ``unwritten`` those that could not be
    kept on disk.
    """

    rows: tuple[Row, ...]
    table: Path
    known: int
    unwritten: int


def run_batch(
    path: Path,
    out: Path,
    *,
    jobs: int | None = None,
    backend: str = "loky",
    address: str | None = None,
) -> Batch:
    """Do what the study file *path* asks for, and write the table into the folder *out*.

    Parameters
    ----------
    jobs
        How many workers; by default one per core here, and all of a cluster. With 1 this process
        does the work, and an item that takes its worker down takes the batch with it.
    backend, address
        "loky" (this machine), or "dask" or "ray" and where the cluster's scheduler listens.

    Raises
    ------
    TransformError
        The study file is wrong, or there is no cluster.
    OSError
        *out* cannot be made, or the table cannot be written.
    """
    if (backend == "loky") != (address is None):
        raise TransformError("give an address with backend dask or ray, and with no other")
    study = read_study(path)
    (out / ITEMS).mkdir(parents=True, exist_ok=True)
    for folder in (out, out / ITEMS):
        sweep(folder)  # what a killed batch left
    items = _items(study, path.parent, out)
    earlier = read_stored(out, [item.key for item in items])
    waiting = group_by_recording([item for item in items if item.key not in earlier])
    rows, unwritten = dict(earlier), 0
    if waiting:
        count = jobs or (all_cores() if backend == "loky" else -1)
        with open_workers(backend, address), progress(len(items) - len(earlier)) as advance:
            for row in evaluate_all(waiting, count, backend):
                rows[row.key] = _keep(out, row)
                unwritten += rows[row.key] is not row
                advance(rows[row.key].error)
    table = out / TABLE
    ordered = tuple(rows[item.key] for item in items)
    write_rows(table, ordered)
    return Batch(ordered, table, len(earlier), unwritten)


def _items(study: Study, folder: Path, out: Path) -> list[Item]:
    """Return all items of *study*; jobs that it names are recorded or measured first, alone."""
    items = list_items(study, folder)
    if study.model:
        scenarios = [scenario_texts(texts) for texts in study.scenarios]
        items += measure_items(study.model, scenarios, folder, out)
    return drop_repeats(items)


def _keep(out: Path, row: Row) -> Row:
    """Write *row*; where that fails, return it as a failed one."""
    try:
        store(out, row)
    except OSError as error:
        return row.without(f"its result cannot be kept: {error.filename}: {error.strerror}")
    return row
