"""placement: which devices a policy picks, and what the collectives cost there."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.errors import TransformError
from foretrace.replaying.replay import replay
from foretrace.transforms.cluster.placement import Placement
from foretrace.transforms.cluster.presets import ethernet, load_cluster
from foretrace.transforms.distributed.common.recast_collectives import recost
from foretrace.transforms.distributed.common.workers import with_workers
from foretrace.transforms.distributed.fsdp import fsdp
from foretrace.transforms.distributed.placement import _place, placement
from tests.support.jobs.collectives import RACKS, in_racks
from tests.support.jobs.sharded import host_job


def test_two_racks_over_a_shared_uplink() -> None:
    """Measured: 175.2 ms with neighbours together, 351.2 ms interleaved; one flow, then two."""
    spread = placement(in_racks(), to="spread")

    assert replay(spread).step_ns / 1e6 == pytest.approx(351.2, rel=0.005)
    assert spread.state.workers.devices == (0, 2, 1, 3)
    assert spread.notes[-1] == ("placement: 4 workers on devices 0, 2, 1, 3 of 4 ranks at 1 Gbit/s")


def test_going_back_gives_the_old_time_back() -> None:
    """What was measured stays the measure."""
    there = placement(in_racks(), to="spread")

    assert replay(placement(there, to="packed")).step_ns == pytest.approx(175.2e6, rel=1e-6)


@pytest.mark.parametrize(
    ("policy", "workers", "devices"),
    [
        ("packed", 6, [0, 1, 2, 3, 4, 5]),
        ("spread", 6, [0, 8, 1, 9, 2, 10]),
        ("rail", 6, [0, 1, 2, 3, 4, 5]),
        ("rail", 10, [0, 8, 1, 9, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_policies_in_machines_of_eight(policy: str, workers: int, devices: list[int]) -> None:
    """Two DGX A100: fill one after the other, take turns, or follow the rails."""
    assert _place(load_cluster("dgx-a100", nodes=2), workers, policy) == devices


def test_spread_takes_turns_between_racks_first() -> None:
    """Eight hosts in two racks: neighbours in the ring are never in one rack."""
    assert _place(ethernet(8, 1.0, racks=2), 8, "spread") == [0, 4, 1, 5, 2, 6, 3, 7]


def test_devices_can_be_named() -> None:
    """The ring 0, 2, 1, 3 by hand."""
    assert (
        replay(placement(in_racks(), to=[0, 2, 1, 3])).step_ns
        == replay(placement(in_racks(), to="spread")).step_ns
    )


def test_another_cluster() -> None:
    """From racks to GPUs of one machine: nothing of the network is left."""
    moved = placement(in_racks(), to="packed", cluster="dgx-a100")

    assert replay(moved).step_ns < 2_000_000
    assert moved.state.workers.cluster.name == "dgx-a100"


def test_the_same_place_changes_nothing() -> None:
    """Packed they were already."""
    graph = in_racks()

    assert placement(graph, to="packed") is graph


def test_gathers_and_scatters_move_as_well() -> None:
    """All collectives of fsdp get their cost in the new place."""
    graph = fsdp(host_job(), workers=4, network="1Gbps")
    racks = with_workers(recost(graph, graph.state.workers, RACKS), RACKS)

    assert replay(placement(racks, to="spread")).step_ns > 1.5 * replay(racks).step_ns


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ("random", "to='random' is unknown; choose one of packed, spread, rail"),
        ([0, 1], "does not name a device for each worker"),
        ([0, 1, 2, 9], "names device 9; cluster '4 ranks at 1 Gbit/s' has 0 to 3"),
        ([0, 1, 2, 2], "names a device twice"),
    ],
)
def test_absurd_places_get_one_sentence(to: Any, text: str) -> None:
    """The text names what is wrong."""
    with pytest.raises(TransformError, match=text):
        placement(in_racks(), to=to)


def test_too_few_devices_are_named() -> None:
    """Four workers do not fit where eight devices are not."""
    graph = with_workers(in_racks(), Placement(ethernet(9, 1.0), tuple(range(9))))

    with pytest.raises(TransformError, match="9 workers do not fit into cluster 'dgx-a100' of 8"):
        placement(graph, cluster="dgx-a100")


def test_a_job_of_one_worker_has_no_place() -> None:
    """Nothing communicates."""
    with pytest.raises(TransformError, match="placement needs a job whose workers and network"):
        placement(host_job())
