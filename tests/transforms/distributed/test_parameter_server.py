"""Parameter servers: the replay against the closed forms, in step and at one's own pace."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from foretrace.errors import TransformError
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.distributed.network import network
from foretrace.transforms.distributed.parameter_server import fair_share_times, parameter_server
from foretrace.transforms.distributed.straggler import straggler
from tests.support.jobs.sharded import STEP_NS, device_job, host_job

MB = 1_500_000
UPDATE_NS, COPY_NS, ISSUE_NS = 304_000, 300_000, 6_000
START_NS = 65_000
WIRE_NS = MB * 8 * 1514 / 1448  # at 1 Gbit/s, with the headers of full Ethernet frames
COMPUTE_NS = STEP_NS - UPDATE_NS + 2 * COPY_NS + ISSUE_NS
"""What a worker does itself: it copies into and out of one tensor, and does not update."""


def step(**parameters: Any) -> float:
    """Return the step of two workers at 1 Gbit/s, in ms."""
    changed = parameter_server(host_job(), **{"workers": 2, "network": "1Gbps", **parameters})
    return replay(changed).step_ns / 1e6


def served(gradients: int, size: float = MB) -> float:
    """Return the ns in which a server at 10 GB/s adds up so many gradients and updates."""
    return ((3 * gradients + 1 if gradients > 1 else 0) + 8) * size / 10


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_in_step_all_workers_share_the_server(workers: int) -> None:
    """Pushing and pulling take as many times as long as there are workers."""
    legs = workers * WIRE_NS + START_NS
    expected = COMPUTE_NS + served(workers) + 2 * legs

    assert step(workers=workers) == pytest.approx(expected / 1e6, rel=1e-6)


def test_where_only_sending_is_limited_pushes_do_not_meet() -> None:
    """As over links that tc shapes: pulls share what the server sends, pushes share nothing."""
    expected = COMPUTE_NS + served(2) + (WIRE_NS + START_NS) + (2 * WIRE_NS + START_NS)

    assert step(ingress=False) == pytest.approx(expected / 1e6, rel=1e-6)


def test_servers_may_be_faster() -> None:
    """An update at 100 GB/s instead of 10."""
    assert step() - step(server_gbps=100) == pytest.approx(0.9 * served(2) / 1e6)


def test_servers_share_the_parameters() -> None:
    """Two servers for two workers: each link carries what one worker sends."""
    legs = WIRE_NS + START_NS
    expected = COMPUTE_NS + served(2, MB / 2) + 2 * legs

    assert step(servers=2) == pytest.approx(expected / 1e6, rel=1e-6)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_at_their_own_pace_workers_meet_by_chance(workers: int) -> None:
    """Between taking turns and coming all at once, as mean value analysis says."""
    compute = COMPUTE_NS + 2 * START_NS
    shared = [WIRE_NS, served(1), WIRE_NS]
    found = step(workers=workers, mode="asp")
    expected = compute + sum(fair_share_times(compute - ISSUE_NS, shared, workers))
    least = max(compute + served(1) + 2 * WIRE_NS, workers * WIRE_NS)

    assert found == pytest.approx(expected / 1e6, rel=1e-6)
    assert least / 1e6 * (1 - 1e-6) <= found <= (compute + workers * sum(shared)) / 1e6 * (1 + 1e-6)


def test_links_that_are_shared_evenly() -> None:
    """Alone a worker takes its own time; many keep the slowest link busy all the time."""
    own, many = (fair_share_times(100, [10, 20], workers) for workers in (1, 1_000))

    assert own == [10, 20]
    assert 100 + sum(many) == pytest.approx(1_000 * 20, rel=1e-3)


def test_pushes_meet_nobody_where_only_sending_is_limited() -> None:
    """The pulls of two workers share the server's link, pushes take their own."""
    compute = COMPUTE_NS + 2 * START_NS + WIRE_NS
    times = fair_share_times(compute - ISSUE_NS, [served(1), WIRE_NS], 2)

    assert step(mode="asp", ingress=False) == pytest.approx((compute + sum(times)) / 1e6, rel=1e-6)


def test_what_chance_decides_is_noted() -> None:
    """The distance between the workers decides as much as that."""
    note = parameter_server(host_job(), workers=2, network="1Gbps", mode="asp").notes[-1]
    found = re.search(r"would be (.*) ms shorter; with all workers at once, (.*) ms longer", note)

    assert found is not None
    shorter, longer = (float(each) for each in found.groups())
    assert shorter + longer == pytest.approx((2 * WIRE_NS + served(1)) / 1e6, rel=1e-2)


def test_pauses_between_tasks_count_as_computing() -> None:
    """A worker whose host idles longer between its tasks meets the others less often."""
    busy = host_job()
    idle = replace(busy, edges=busy.edges.assign(lag_ns=busy.edges["lag_ns"] + 300_000))
    steps = [
        replay(parameter_server(job, workers=2, network="1Gbps", mode="asp")).step_ns
        for job in (busy, idle)
    ]

    assert 1_800_000 < steps[1] - steps[0] < 2_100_000  # 7 pauses stay, less waiting


def test_slowest_worker_delays_the_update() -> None:
    """In step the servers wait for it; at their own pace nobody does."""
    job = replace(host_job(), step_samples_ns=(9_000_000, 11_000_000) * 4)
    steps = {
        mode: replay(parameter_server(job, workers=2, network="1Gbps", mode=mode)).step_ns / 1e6
        for mode in ("bsp", "asp")
    }

    assert steps["bsp"] - step() == pytest.approx(0.5)
    assert steps["asp"] == step(mode="asp")


def test_kernels_of_the_next_step_wait_for_the_parameters() -> None:
    """On a device the host goes on; kernels do not."""
    graph = parameter_server(device_job(), workers=2, network="1Gbps")
    timeline = replay(graph)
    names = graph.tasks["name"].astype(str)
    pull, after = (graph.tasks.index[names == name] for name in ("PS pull", "PS copy out"))

    assert (names != "update_kernel").all()
    assert (timeline.start_ns[after] >= timeline.end_ns[pull]).all()
    assert timeline.step_ns == pytest.approx(
        9_000_000 + 4 * WIRE_NS + 2 * START_NS + served(2) + 2 * 3_922, rel=1e-6
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"workers": 0}, "workers=0 is out of range"),
        ({"servers": 0}, "servers=0 is out of range"),
        ({"server_gbps": 0}, "server_gbps=0 is out of range"),
        ({"mode": "ssp"}, "mode='ssp' is unknown; choose one of bsp, asp"),
        ({"network": "fast"}, "network='fast' is no rate"),
        ({"cluster": "dgx-a100"}, "joins devices, and this is a CPU job"),
        ({"workers": 2000, "servers": 1000}, "2,000 workers x 1,000 servers exchange too many"),
    ],
)
def test_absurd_input_gets_one_sentence(changes: dict[str, Any], text: str) -> None:
    """The text names what is wrong."""
    with pytest.raises(TransformError, match=text):
        parameter_server(host_job(), **{"workers": 2, "network": "1Gbps", **changes})


@pytest.mark.parametrize("mode", ["bsp", "asp"])
@pytest.mark.parametrize("job", [host_job, device_job])
def test_contract(job: Any, mode: str) -> None:
    """Input untouched, output valid, the same twice, labelled and explained."""
    changed = check_transform(parameter_server, job(), workers=3, network="1Gbps", mode=mode)

    assert changed.meta.world_size == 3
    assert changed.notes[0] == (
        "parameter_server: 3 workers push and pull 1.5 MB, 1 servers, 4 ranks at 1 Gbit/s, " + mode
    )


def test_a_slow_worker_is_waited_for_in_step_only() -> None:
    """100 ms more on one of two workers: all wait; at their own pace nobody does."""
    in_step, own = (
        parameter_server(host_job(), workers=2, network="1Gbps", mode=mode)
        for mode in ("bsp", "asp")
    )
    slow = straggler(in_step, rank=1, delay_ms=100)

    assert replay(slow).step_ns - replay(in_step).step_ns == 100_000_000
    with pytest.raises(TransformError, match="nobody waits for it"):
        straggler(own, rank=1, delay_ms=100)


def test_another_network_is_refused() -> None:
    """What a server's links take is decided here, not by a collective's size."""
    graph = parameter_server(host_job(), workers=2, network="1Gbps")

    with pytest.raises(TransformError, match="no collective of known size"):
        network(graph, bandwidth="2Gbps")


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        (1, r"nothing says what joins 3 workers; .* \(1 of these 3 serve\)$"),
        (2, r"nothing says what joins 4 workers; .* \(2 of these 4 serve\)$"),
    ],
)
def test_servers_are_told_apart_where_workers_are_counted(servers: int, said: str) -> None:
    """They need devices as workers do, and the user gave them apart."""
    with pytest.raises(TransformError, match=said):
        parameter_server(host_job(), workers=2, servers=servers)
