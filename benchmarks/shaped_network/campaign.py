"""Measure distributed training over shaped links, within a time budget: `record_network`.

Goes in: models, schemes, minutes. Comes out: an archive of cells with the recordings that
predictions start from (`cells`), and a card. A cell that is there is not measured again.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from benchmarks.shaped_network.card import write_card
from benchmarks.shaped_network.cells import CellRun, MeasuredCell, write_cells
from benchmarks.shaped_network.plan import select_groups
from benchmarks.shaped_network.visit import Effort, cells_of, visit
from foretrace.errors import RecordError
from foretrace.tracer.lab.network.namespaces import shaped_network, unavailable
from foretrace.tracer.lab.network.rank_processes import start_ranks
from foretrace.tracer.lab.pairs.archive import compress
from foretrace.tracer.lab.pairs.campaign import NO_TIME, say, stoppable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.shaped_network.plan import Group, Setup
    from foretrace.tracer.lab.network.rank_processes import Ranks

COMMAND = "python -m benchmarks.shaped_network"
WORKER = "benchmarks.shaped_network.rank_worker"
CELL, JOB = ".cell.json", ".job.json"
BUILD_SECONDS, RECORD_SECONDS = 20.0, 60.0


@dataclass(frozen=True)
class NetworkArchive:
    """What a run left behind: the archive, its card, and in words what it could not do."""

    archive: Path
    card: Path
    left_out: tuple[str, ...]


def record_network(
    models: Sequence[str] | None = None,
    schemes: Sequence[str] | None = None,
    *,
    minutes: float = 20.0,
    out: str | Path = "network",
    groups: Sequence[Group] | None = None,
    effort: Effort | None = None,
) -> NetworkArchive:
    """Measure *schemes* of *models* for at most *minutes* and pack the cells into *out*.

    Interrupted, it packs what it has; run again with the same *out*, it goes on from there.
    ``None`` stands for all models and schemes; *groups* is a plan of one's own.

    Raises
    ------
    RecordError
        A name is unknown, there can be no shaped network here, or nothing could be measured.
    """
    groups = select_groups(models, schemes) if groups is None else groups
    if (reason := unavailable()) is not None:
        raise RecordError(f"no shaped network here: {reason}")
    folder = Path(out) / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(folder, time.time() + 60 * minutes, effort or Effort())
    try:
        with stoppable():
            for group in groups:
                campaign.measure(group)
    except KeyboardInterrupt:
        say("stopped: packing what there is")
    return campaign.pack(Path(out), groups)


class Campaign:
    """Measures groups until ``deadline``; every cell is a file in ``folder`` once it is visited."""

    def __init__(self, folder: Path, deadline: float, effort: Effort) -> None:
        """Go on with what is in *folder* until *deadline*, a time of `time.time`."""
        self.folder, self.deadline, self.effort = folder, deadline, effort
        self.failed: dict[str, str] = {}

    def measure(self, group: Group) -> None:
        """Measure what is missing of *group*; a setup that fails is left out, the rest is tried."""
        waiting = [setup for setup in group.setups if any(self._waiting(group, setup))]
        while waiting and not self._is_late():
            try:
                with self._start(group) as ranks:
                    self._begin(group, ranks)
                    while waiting and not self._is_late():
                        self._visit_all(group, waiting[0], ranks)
                        waiting.pop(0)
            except RecordError as error:
                for cell in self._waiting(group, waiting.pop(0)):
                    self.failed[cell.name] = str(error)
                    say(f"{cell.name}: {error}")

    def pack(self, out: Path, groups: Sequence[Group]) -> NetworkArchive:
        """Pack all cells there are; say which of *groups* are missing, and why."""
        left_out = tuple(
            f"{cell.name}: {self.failed.get(cell.name, NO_TIME)}"
            for group in groups
            for setup in group.setups
            for cell in self._waiting(group, setup)
        )
        for line in left_out:
            say(f"left out: {line}")
        cells = [_read(path) for path in sorted(self.folder.glob(f"*{CELL}"))]
        if not cells:
            raise RecordError(f"nothing was measured: {(*left_out, NO_TIME)[0]}")
        jobs = {
            path.name.removesuffix(JOB): json.loads(path.read_text("utf-8"))
            for path in sorted(self.folder.glob(f"*{JOB}"))
        }
        write_cells(self.folder, cells, jobs, out / "network.tar")
        card = write_card(cells, jobs, out / "network.md")
        say(f"wrote {len(cells)} cells to {out / 'network.tar'}")
        return NetworkArchive(out / "network.tar", card, left_out)

    @contextmanager
    def _start(self, group: Group) -> Iterator[Ranks]:
        """Start *group* on a shaped network of its own, links as fast as they can be."""
        log = self.folder / "ranks.log"
        with (
            shaped_network(group.all_racks) as network,
            start_ranks(network, log, servers=group.servers, worker=WORKER) as ranks,
        ):
            yield ranks

    def _is_late(self) -> bool:
        return time.time() > self.deadline

    def _waiting(self, group: Group, setup: Setup) -> Iterator[MeasuredCell]:
        """Yield the cells of *setup* that still need visits, with the runs they have."""
        rounds = self.effort.rounds_of(setup)
        for cell in map(self._resume, cells_of(group, setup)):
            if len(cell.runs) < rounds:
                yield cell

    def _path(self, cell: MeasuredCell) -> Path:
        return self.folder / f"{cell.name.replace(' ', '_')}{CELL}"

    def _resume(self, cell: MeasuredCell) -> MeasuredCell:
        """Return *cell* as it was measured so far."""
        path = self._path(cell)
        return _read(path) if path.exists() else cell

    def _begin(self, group: Group, ranks: Ranks) -> None:
        """Build the group's job and record it, unless that was done."""
        if group.model is None:
            return
        built = ranks.tell("build", model=group.model, expected_seconds=BUILD_SECONDS)
        path = self.folder / f"{group.job}{JOB}"
        if path.exists():
            return
        trace = self.folder / f"{group.job}.json"
        where = {"path": str(trace.resolve()), "command": COMMAND}
        recorded = ranks.tell("record", **where, expected_seconds=RECORD_SECONDS)[0]
        compress(trace)
        _write(path, {"trace": trace.name, **built[0], **recorded})
        steps = recorded["facts"]["unprofiled_step_ns"]
        say(f"{group.job}: {mean(steps) / 1e6:.1f} ms alone")

    def _visit_all(self, group: Group, setup: Setup, ranks: Ranks) -> None:
        """Visit the cells of *setup* up and down the link speeds."""
        if setup.trains:
            ranks.network.shape(None)
            ranks.tell(
                "prepare",
                training=setup.training,
                model=group.model,
                options=setup.options,
                expected_seconds=BUILD_SECONDS,
            )
        for turn in range(self.effort.rounds_of(setup)):
            cells = [self._resume(cell) for cell in cells_of(group, setup)]
            for cell in cells if turn % 2 == 0 else reversed(cells):
                if len(cell.runs) <= turn and not self._is_late():
                    visited = visit(cell, setup, ranks, self.effort)
                    _write(self._path(cell), asdict(visited))
                    say(f"{cell.name}: {visited.step_ns / 1e6:.2f} ms, {visited.noise:.1%} apart")


def _read(path: Path) -> MeasuredCell:
    content = json.loads(path.read_text("utf-8"))
    return replace(MeasuredCell(**content), runs=tuple(CellRun(**run) for run in content["runs"]))


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write *content* whole or not at all: the run may be ended at any time."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(content), "utf-8")
    unfinished.replace(path)
