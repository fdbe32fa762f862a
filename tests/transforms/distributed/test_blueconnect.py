"""blueconnect: the stages of an all-reduce, the levels they run on, and who waits for the last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.state import JobState
from foretrace.replaying.replay import replay
from foretrace.transforms.cluster.placement import Placement
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import cost_at_once
from foretrace.transforms.distributed.blueconnect import blueconnect
from foretrace.transforms.distributed.common.workers import with_workers
from foretrace.transforms.distributed.ddp.ddp import ddp
from tests.support.jobs.collectives import SIZE, SLOW_RACKS, reduces
from tests.support.jobs.sharded import device_job, host_job


def stage(kind: str, groups: list[tuple[int, ...]], size: float) -> int:
    """Return what one stage costs while all groups of its level run theirs."""
    return cost_at_once(SLOW_RACKS.cluster, groups, kind, size).ns


INSIDE: list[tuple[int, ...]] = [(0, 1), (2, 3)]
ACROSS: list[tuple[int, ...]] = [(0, 2), (1, 3)]


def test_one_all_reduce_becomes_three_stages_in_a_row() -> None:
    """Scattered in the racks, all-reduced across them, gathered in the racks; 7 µs beside stay."""
    changed = blueconnect(reduces(1_000_000))
    stages = [
        stage("reduce_scatter", INSIDE, SIZE) + 7_000,
        stage("all_reduce", ACROSS, SIZE / 2),
        stage("all_gather", INSIDE, SIZE),
    ]
    tasks = changed.tasks[changed.tasks["kind"] == "collective"]

    assert sorted(tasks["work_ns"]) == sorted(stages)
    assert replay(changed).step_ns == 1_000_000 + sum(stages) + 1_000


def test_buckets_overlap_on_different_levels() -> None:
    """While one bucket crosses the racks, the next is scattered inside."""
    changed = blueconnect(reduces(1_000, 1_000))
    timeline = replay(changed)
    names = changed.tasks["name"].astype(str)
    scatters, across = (
        sorted(
            changed.tasks.index[names == f"BlueConnect {kind}"], key=lambda r: timeline.start_ns[r]
        )
        for kind in ("reduce_scatter", "all_reduce")
    )

    assert timeline.start_ns[scatters[1]] < timeline.end_ns[across[0]]
    assert timeline.start_ns[across[1]] >= timeline.end_ns[across[0]]


def test_narrow_uplink_carries_half() -> None:
    """A ring sends 1.5 of the size through the uplink; two rails of half the size send 1 in all."""
    whole = reduces(1_000_000)
    before, after = replay(whole).step_ns, replay(blueconnect(whole)).step_ns

    assert before > after > before / 2


def test_machines_of_several_devices_are_a_level() -> None:
    """Two DGX A100: 8 inside, 2 across."""
    graph = ddp(device_job(), workers=16, cluster="dgx-a100", bucket_cap_mb=1)
    changed = blueconnect(graph)

    assert changed.notes[-1].endswith("become 8 x 2 stages")
    before, after = (each.state.network for each in (graph, changed))
    assert before is not None
    assert after is not None
    assert len(after.members) == len(before.members) + 2


def test_one_level_has_nothing_to_decompose() -> None:
    """All GPUs of one machine."""
    with pytest.raises(TransformError, match="all workers are on one level of the network"):
        blueconnect(with_workers(reduces(9), Placement(load_cluster("dgx-a100"), tuple(range(8)))))


def test_uneven_groups_are_refused() -> None:
    """Three ranks in two racks."""
    with pytest.raises(TransformError, match="as many of its devices in each machine and switch"):
        blueconnect(with_workers(reduces(9), SLOW_RACKS._replace(devices=(0, 1, 2))))


def test_a_graph_without_workers_or_sizes_is_refused() -> None:
    """A recording says neither where its ranks are nor, sometimes, how large its tensors were."""
    graph = reduces(9)
    nothing = replace(graph, state=JobState())
    sizeless = replace(graph, tasks=graph.tasks.assign(bytes=np.nan))

    with pytest.raises(TransformError, match="blueconnect needs a job whose workers and network"):
        blueconnect(nothing)
    with pytest.raises(TransformError, match="needs the bytes of every all-reduce"):
        blueconnect(sizeless)
    with pytest.raises(TransformError, match="no all_reduce in this graph"):
        blueconnect(host_job())
