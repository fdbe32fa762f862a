"""Loader workers: batches made elsewhere, on literal jobs with expected numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.graph.state import SeenLoader
from foretrace.replaying.replay import replay
from foretrace.transforms.costs.assumed import read_as
from foretrace.transforms.host.dataloader import CROWDING, dataloader
from tests.support.jobs.simple import META, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


MS = 1_000_000


def loading(load: int, compute: int, **meta: Any) -> Graph:
    """Build four steps of loading (ms) and computing (ms) on one thread."""
    tasks = [("next", "host", 0, load * MS, "load"), ("train", "host", 0, compute * MS, "forward")]
    return literal(
        tasks * 4,
        columns={"step": np.repeat(np.arange(4, dtype=np.int32), 2)},
        meta=replace(META, **meta),
        wrap=True,
        measured_step_ns=float((load + compute) * MS),
    )


@pytest.mark.parametrize(
    ("load", "compute", "workers", "step"),
    [(10, 20, 1, 22.5), (60, 20, 1, 60), (60, 20, 2, 30), (60, 20, 3, 22.5), (100, 20, 8, 22.5)],
)
def test_workers_load_while_the_job_computes(
    load: int, compute: int, workers: int, step: float
) -> None:
    """The longer of computing plus hand-over (2.5 ms) and loading divided by workers."""
    changed = check(dataloader(loading(load, compute), workers=workers))

    assert replay(changed).step_ns / MS == pytest.approx(step, rel=0.01)


def test_more_workers_may_get_into_each_others_way() -> None:
    """The end of the range: 4 for 1 make a batch take 4 to the power of 0.6 as long, 2.3 times."""
    graph = loading(60, 10)
    with read_as(CROWDING, CROWDING.most):
        crowded = replay(dataloader(graph, workers=4)).step_ns / MS

    assert crowded == pytest.approx(60 / 4 * 4**0.6, rel=0.01)
    assert replay(dataloader(graph, workers=4)).step_ns / MS == pytest.approx(15, rel=0.01)


@pytest.mark.parametrize(("size", "taken"), [(None, 2.5), (4_000, 2.5), (25_000_000, 5.5)])
def test_large_batches_take_longer_to_hand_over(size: int | None, taken: float) -> None:
    """Shared pages are mapped when they are read first: 0.12 ms per MB on top of 2.5 ms."""
    changed = dataloader(loading(10, 20, loader={"batch_bytes": size}), workers=1)
    handover = changed.tasks[changed.tasks["name"].str.startswith("take")]

    assert handover["work_ns"].tolist() == pytest.approx([taken * MS] * 4, abs=1_000)


@pytest.mark.parametrize(
    ("cores", "share", "taken"), [(1, 1.0, 12.5), (1, 0.5, 7.5), (4, 1.0, 2.5)]
)
def test_few_cores_are_shared(cores: int, share: float, taken: float) -> None:
    """On one core, workers save only what is no processor time."""
    graph = loading(10, 20, machine={"cores": cores, "threads": 1}, loader={"cpu_share": share})
    changed = dataloader(graph, workers=2)
    handover = changed.tasks[changed.tasks["name"].str.startswith("take")]

    assert handover["work_ns"].tolist() == [round(taken * MS)] * 4


def worker_job(**loader: Any) -> Graph:
    """Build two steps that wait for a recorded worker; the second batch was late."""
    return literal(
        [
            ("next", "host", 0, 5, None),
            ("train", "host", 0, 20 * MS, "forward"),
            ("next", "host", 0, 5, None),
            ("train", "host", 0, 20 * MS, "forward"),
            ("load", "load", 1, 80 * MS, "load"),
        ],
        [(4, 2, "data", 0)],
        columns={"step": [0, 0, 1, 1, 1]},
        meta=replace(META, loader=loader or None),
        wrap=True,
    )


def test_recorded_workers_scale() -> None:
    """80 ms of waiting per two steps with 2 workers: a batch takes 80 ms, and 8 make one in 10."""
    changed = check(dataloader(worker_job(workers=2), workers=8))
    loads = changed.tasks[changed.tasks["kind"] == "load"]

    assert loads["work_ns"].tolist() == [10 * MS] * 2
    assert changed.meta.loader == {"workers": 8, "prefetch": 2}
    assert (changed.tasks["name"].str.startswith("take")).sum() == 0


@pytest.mark.parametrize(("recorded", "step"), [(2, 80), (0, 22.5)], ids=["workers", "own"])
def test_each_rank_has_workers_of_its_own(recorded: int, step: float) -> None:
    """Two ranks: 40 ms a step in each of them, of one of 2 workers or of the training process."""
    tasks: list[Any] = []
    for lane in (0, 2) if recorded else (0, 1):
        who = ("load", lane + 1) if recorded else ("host", lane)
        tasks += [("next", *who, 40 * MS, "load"), ("train", "host", lane, 20 * MS, "forward")]
    edges = [(0, 1, "data", 0), (2, 3, "data", 0)] if recorded else []
    meta = replace(META, loader={"workers": recorded} if recorded else None)
    graph = literal(tasks, edges, meta=meta, wrap=True, measured_step_ns=60.0 * MS)
    half = len(graph.lanes) // 2
    role = ["main", "loader"][:half] * 2
    lanes = graph.lanes.assign(rank=np.repeat([0, 1], half).astype(np.int16), role=role)
    graph = replace(graph, lanes=lanes.astype({"role": "category"}))
    changed = check(dataloader(graph, workers=1 if recorded else 4))

    assert changed.lanes["rank"][changed.lanes["kind"] == "loader"].tolist()[-2:] == [0, 1]
    assert replay(changed).step_ns == step * MS


def test_many_workers_set_the_pace_however_few_steps_are_known() -> None:
    """In bursts, 8 of them would deliver every 4 repetitions of two steps; they make one in 10."""
    job = worker_job(workers=2)
    quick = job.tasks["work_ns"].where(job.tasks["name"] != "train", MS)
    changed = dataloader(replace(job, tasks=job.tasks.assign(work_ns=quick)), workers=8)

    assert replay(changed).step_ns == 10 * MS


def test_the_recorded_workers_cannot_be_overruled() -> None:
    """The recording counts them; without a count they have to be some."""
    with pytest.raises(
        TransformError, match=r"recorded_workers=4 contradicts this job \(workers: 2\)"
    ):
        dataloader(worker_job(workers=2), workers=8, recorded_workers=4)
    with pytest.raises(TransformError, match="recorded_workers=0 is out of range"):
        dataloader(worker_job(), workers=8, recorded_workers=0)


def test_loading_can_come_back_into_the_job() -> None:
    """With no workers each step loads its own batch."""
    changed = check(dataloader(worker_job(workers=2), workers=0))

    assert changed.tasks["work_ns"][changed.tasks["phase"] == "load"].tolist() == [80 * MS] * 2


@pytest.mark.parametrize(("workers", "loads", "main"), [(0, 0, 50), (1, 4, 10)])
def test_workers_that_keep_up_are_known_by_what_a_batch_costs(
    workers: int, loads: int, main: float
) -> None:
    """Handing over took 10 ms a step; the recorder saw that a batch alone takes 50."""
    job = loading(10, 20, loader={"workers": 4, "load_ns": 50 * MS, "cpu_share": 0.0})

    tasks = check(dataloader(job, workers=workers)).tasks
    on_main = (tasks["phase"] == "load") & (tasks["kind"] == "host")

    assert tasks["work_ns"][tasks["kind"] == "load"].tolist() == [50 * MS] * loads
    assert tasks["work_ns"][on_main].tolist() == [round(main * MS)] * 4


def test_a_loader_that_cannot_be_read_is_an_error() -> None:
    """Unknown workers, no loading at all, workers that keep up, or threads instead."""
    with pytest.raises(TransformError, match="give recorded_workers"):
        dataloader(worker_job(), workers=4)
    with pytest.raises(TransformError, match="no visible time on loading"):
        dataloader(gpu_job(load=0), workers=4)
    graph = literal([("train", "host", 0, 9, None), ("RunCPU", "host", 1, 9, "load")])
    lanes = graph.lanes.assign(role=["main", "loader"]).astype({"role": "category"})
    with pytest.raises(TransformError, match="loads in threads of its own"):
        dataloader(replace(graph, lanes=lanes), workers=8)


def never_waited_for(**seen: Any) -> Graph:
    """Build four steps of 30 ms that took over batches of worker processes in 10 of them."""
    loader = {"handover_ns": 10 * MS, "handover_seen": True, "shortest_ns": 10 * MS}
    graph = loading(10, 20)
    return graph.with_state(loader=SeenLoader(**{**loader, "waited": False, **seen}))


def test_workers_that_were_never_waited_for_hide_what_a_batch_costs() -> None:
    """It is at most 4 steps for one of 4: with 2 workers a step takes 30 to 60 ms."""
    graph = never_waited_for()
    fewer = dataloader(graph, workers=2, recorded_workers=4)

    assert dataloader(graph, workers=8, recorded_workers=4) is graph
    assert fewer.tasks is graph.tasks
    (doubt,) = fewer.state.doubts
    assert doubt.code == "loader-cost-hidden"
    assert "one of 4 workers takes 120.000 ms at most" in doubt.text
    assert "between 30.000 and 60.000 ms" in doubt.text


def test_nobody_knows_whether_uncounted_workers_become_fewer() -> None:
    """They may; and what they do cannot be put into the training process."""
    (doubt,) = dataloader(never_waited_for(), workers=4).state.doubts

    assert doubt.code == "loader-cost-hidden"
    assert "give recorded_workers" in doubt.text
    with pytest.raises(TransformError, match="record the job with workers=0"):
        dataloader(never_waited_for(), workers=0)


def test_one_burst_and_the_number_of_workers_tell_what_a_batch_costs() -> None:
    """40 ms once in as many steps as there are workers, beside 20: 4 of them make one in 120 ms."""
    seen = SeenLoader(1, handover_seen=True, shortest_ns=1, waited=True, burst_ns=40 * MS)
    graph = worker_job().with_state(loader=seen._replace(others_ns=20 * MS))
    tasks = dataloader(graph, workers=1, recorded_workers=4).tasks

    assert tasks["work_ns"][tasks["kind"] == "load"].tolist() == [120 * MS] * 2
