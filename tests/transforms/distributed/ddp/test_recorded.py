"""Changes of a job that runs DDP already: on a small recording, and on public ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.batching.gradient_accumulation import gradient_accumulation
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.distributed.common.gradients import find_gradients
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.ddp.recorded import (
    RecordedSetup,
    change_recorded,
    interpolate,
)
from foretrace.transforms.edit.provenance import samples
from tests.support.jobs.recorded_ddp import MIB, MS, RING, recorded_job
from tests.support.jobs.simple import META

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def sizes(graph: Graph) -> list[float]:
    """Return the MiB of the all-reduces of the first step."""
    rows = graph.tasks[(graph.tasks["name"] == "DDP all_reduce") & (graph.tasks["step"] == 0)]
    return (rows["bytes"] / MIB).tolist()


def count(graph: Graph, name: str) -> int:
    """Return how many tasks of that name there are."""
    return int((graph.tasks["name"] == name).sum())


def changed(graph: Graph, **parameters: Any) -> Graph:
    """Return *graph* with what *parameters* say, for two workers."""
    return check(ddp(graph, **{"workers": 2, **parameters}))


def test_copies_tell_the_gradients_and_where_they_are_ready() -> None:
    """1 MiB fills the first bucket; the others share the second, a kernel each."""
    job = recorded_job()
    found = find_gradients(job)

    assert [g.bytes / MIB for g in found] == [1, 20, 12]
    assert [job.tasks["name"].iloc[g.row] for g in found] == ["bwd"] * 3
    assert [g.row for g in found] == [3, 7, 9]
    assert {g.source for g in found} == {"copies"}


def test_asking_for_what_is_there_changes_next_to_nothing() -> None:
    """All-reduces cost what the recorded ones of their size took."""
    job = recorded_job(steps=3)
    same = check_transform(ddp, job, workers=2)

    assert sizes(same) == [1, 32]
    assert count(same, RING) == 0
    assert replay(same).step_ns == pytest.approx(replay(job).step_ns, rel=0.02)


def test_one_large_bucket_starts_behind_the_last_gradient() -> None:
    """Caps of 100 MiB: nothing overlaps with backward any more."""
    graph = changed(recorded_job(), bucket_cap_mb=100)
    timeline = replay(graph)
    reduce = int(np.flatnonzero((graph.tasks["name"] == "DDP all_reduce").to_numpy())[0])
    backward = np.flatnonzero((graph.tasks["name"] == "bwd").to_numpy())

    assert sizes(graph) == [33]
    assert timeline.start_ns[reduce] >= timeline.end_ns[backward].max()


def test_smaller_buckets_start_with_their_own_gradients() -> None:
    """Three of them; times in proportion to bytes between those that were seen."""
    graph = changed(recorded_job(), bucket_cap_mb=1)

    assert sizes(graph) == [1, 20, 12]
    assert set(graph.tasks["cost"][graph.tasks["name"] == "DDP all_reduce"]) == {"table"}


def test_a_view_saves_the_copies_and_the_update_waits_itself() -> None:
    """Three copies of 0.1 ms go; the update starts behind the last all-reduce."""
    job = recorded_job()
    view = changed(job, gradient_as_bucket_view=True)
    timeline = replay(view)
    update, reduced = (
        np.flatnonzero((view.tasks["name"] == name).to_numpy())
        for name in ("update", "DDP all_reduce")
    )

    assert count(view, "Memcpy DtoD (Device -> Device)") == 0
    assert timeline.start_ns[update[0]] >= timeline.end_ns[reduced].max()
    saved = replay(job).step_ns - replay(view).step_ns
    assert saved == pytest.approx(3 * MS / 10, rel=0.05)


def test_a_recorded_view_waits_behind_backward() -> None:
    """No copies, sizes given: what follows backward on its stream waits."""
    job = recorded_job(copies=False)
    graph = changed(job, parameters=[2.1, 31.5, 1.05])
    timeline = replay(graph)
    update = int(np.flatnonzero((graph.tasks["name"] == "update").to_numpy())[0])
    reduced = np.flatnonzero((graph.tasks["name"] == "DDP all_reduce").to_numpy())

    assert timeline.start_ns[update] >= timeline.end_ns[reduced].max()


def test_other_workers_and_network_cost_what_their_cluster_says() -> None:
    """The recorded algorithm is kept; kernels lose what recorded transfers had added to them."""
    job = recorded_job()
    graph = changed(job, workers=8, cluster="perlmutter-2021")
    work = graph.tasks["work_ns"][graph.tasks["name"] == "DDP all_reduce"].tolist()
    cluster = load_cluster("perlmutter-2021", nodes=2)

    assert work == [
        collective_cost(cluster, range(8), "all_reduce", n * MIB, algorithm="ring").ns
        for n in (1, 32)
    ]
    assert graph.state.network is not None
    kernels = graph.tasks[(graph.tasks["name"] == "bwd")]["work_ns"].tolist()
    assert kernels == [MS, 0.58 * MS, 0.58 * MS]


def test_an_algorithm_that_no_name_tells_is_the_library_s_choice() -> None:
    """Newer kernels of NCCL say less."""
    job = recorded_job()
    names = job.tasks["name"].cat.rename_categories({RING: "ncclDevKernel_AllReduce"})
    graph = changed(replace(job, tasks=job.tasks.assign(name=names)), cluster="dgx-a100")
    cost = collective_cost(load_cluster("dgx-a100"), (0, 1), "all_reduce", 32 * MIB)

    assert graph.tasks["work_ns"][graph.tasks["name"] == "DDP all_reduce"].tolist()[1] == cost.ns


def test_broadcasts_can_be_left_out() -> None:
    """The flag that keeps buffers apart."""
    job = recorded_job()
    names = job.tasks["name"].astype(str).tolist()
    kinds = job.tasks["kind"].astype(str).tolist()
    names[1], kinds[1] = "ncclKernel_Broadcast_RING_LL", "collective"
    tasks = job.tasks.assign(name=names, kind=kinds).astype(
        {"name": "category", "kind": "category"}
    )
    job = replace(job, tasks=tasks)

    assert count(changed(job), "ncclKernel_Broadcast_RING_LL") == 1
    assert count(changed(job, broadcast_buffers=False), "ncclKernel_Broadcast_RING_LL") == 0


def test_times_between_seen_sizes_are_interpolated() -> None:
    """In proportion below and above."""
    seen = np.array([10.0, 20.0, 20.0, 20.0]), np.array([6.0, 9.0, 10.0, 30.0])

    assert interpolate(*seen, np.array([5.0, 15.0, 40.0])).tolist() == [3.0, 8.0, 20.0]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"workers": 8}, "recorded on 2 ranks; say what joins 8 workers"),
        ({"compression": "fp16"}, "needs the recording of a job on one worker"),
    ],
)
def test_what_a_recording_of_ddp_cannot_tell(given: dict[str, Any], text: str) -> None:
    """One sentence each."""
    job = recorded_job()
    job = replace(job, meta=replace(job.meta, world_size=2))

    with pytest.raises(TransformError, match=text):
        changed(job, **given)


def test_ranks_recorded_together_are_not_changed_at_once() -> None:
    """The file of one of them is."""
    job = recorded_job()
    job = replace(job, lanes=job.lanes.assign(rank=np.arange(len(job.lanes)).astype(np.int16)))

    with pytest.raises(TransformError, match=r"recording holds \d ranks; ddp changes one for all"):
        changed(job, workers=2)


def test_a_recording_that_does_not_count_its_workers_says_so() -> None:
    """Samples per second are then compared with as many workers."""
    job = replace(recorded_job(), meta=replace(META, world_size=None))

    assert any("taken to be 2" in note for note in changed(job, workers=2).notes)


def test_workers_of_the_recording_count_its_samples() -> None:
    """Eight in place of four: twice the samples; what contradicts the recording is refused."""
    job = recorded_job()
    unknown = replace(job, meta=replace(job.meta, world_size=None))

    assert samples(ddp(unknown, workers=8, recorded_workers=4, cluster="dgx-a100")) == 2
    with pytest.raises(TransformError, match="recorded on 4 ranks; say what joins 8 workers"):
        ddp(unknown, workers=8, recorded_workers=4)
    with pytest.raises(TransformError, match="recorded_workers=2 contradicts this job"):
        ddp(replace(job, meta=replace(job.meta, world_size=4)), workers=4, recorded_workers=2)


def test_kernels_that_communicate_in_their_own_way_are_left_alone() -> None:
    """They are no all-reduces, and a job that has them is not one worker's."""
    alone = literal([("deep_ep::internode::combine<8>", "kernel", 0, MS, "backward")])

    with pytest.raises(TransformError, match="communicates in kernels of its own"):
        ddp(alone, workers=8, cluster="dgx-a100", gradient_mb=100)


def test_copies_that_do_not_fit_the_buckets_are_no_gradients() -> None:
    """Three all-reduces, yet default caps make two buckets: sizes must be given."""
    with pytest.raises(TransformError, match="does not tell how large the gradients are"):
        find_gradients(recorded_job(reduced=3))


def test_a_step_whose_gradients_are_unknown_is_named() -> None:
    """Two steps reduce, one has gradients."""
    job = recorded_job(steps=2)
    found = [g for g in find_gradients(job) if g.step == 0]

    with pytest.raises(TransformError, match="step 1 reduces gradients"):
        change_recorded(job, found, RecordedSetup())


def with_operators(job: Graph, names: tuple[str, ...]) -> Graph:
    """Return *job* whose kernels' names tell nothing; its n-th collective is of operator n."""
    tasks = job.tasks
    is_collective = (tasks["kind"] == "collective").to_numpy()
    operator = np.full(len(tasks), -1, np.int32)
    operator[is_collective] = np.arange(is_collective.sum())
    other = tasks["name"].cat.rename_categories({RING: "ncclDevKernel_Generic"})
    columns = {"name": list(names), "parent": [-1] * len(names)}
    operators = literal([("a", "host", 0, 1, None)], operators=columns).operators
    return replace(job, tasks=tasks.assign(operator=operator, name=other), operators=operators)


def test_operators_tell_all_reduces_where_kernels_do_not() -> None:
    """Newer libraries have one kernel for everything."""
    job = with_operators(recorded_job(), ("c10d::allreduce_", "c10d::allreduce_"))

    assert sizes(changed(job)) == [1, 32]


def test_accumulation_exchanges_recorded_gradients_once() -> None:
    """The all-reduces of all batches but the last go, with their launches."""
    job = recorded_job()
    twice = check(gradient_accumulation(job, k=2))

    assert count(twice, RING) == 2
    assert count(twice, "fwd") == 2


def test_all_reduces_of_layers_stay_in_every_batch() -> None:
    """One launched in forward belongs to a layer: which exchange gradients cannot be told."""
    job = recorded_job()
    phase = job.tasks["phase"].astype(object)
    call = int(np.flatnonzero((job.tasks["kind"] == "collective").to_numpy())[0]) - 1
    phase[call] = "forward"
    tasks = job.tasks.assign(phase=phase.astype(job.tasks["phase"].dtype))

    assert count(gradient_accumulation(replace(job, tasks=tasks), k=2), RING) == 4
