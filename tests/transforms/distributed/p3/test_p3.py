"""p3: slices of the first layers overtake those of the last, and a layer waits for its own only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import TransformError
from foretrace.replaying.replay import replay
from foretrace.testing import check_transform
from foretrace.transforms.distributed.p3.p3 import p3
from foretrace.transforms.distributed.parameter_server import parameter_server
from tests.support.jobs.sharded import device_job, host_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

WIRE_NS_PER_MB = 8_000_000 * 1514 / 1448  # at 1 Gbit/s


def legs(graph: Graph, step: int = 0) -> list[tuple[str, str]]:
    """Return pushes and pulls of *step* with the layer they belong to, as their lanes run them."""
    tasks = graph.tasks
    rows = tasks.index[(tasks["kind"] == "collective") & (tasks["step"] == step)]
    start = replay(graph).start_ns
    order = sorted(rows, key=lambda row: (start[row], row))
    return [(str(tasks["name"][row])[3:], str(tasks["module"][row])[-1]) for row in order]


def test_first_layer_overtakes_the_rest_of_the_last() -> None:
    """Layer 1 is cut in two; layer 0, final later, goes between its halves, and is pulled first."""
    graph = p3(host_job(), workers=2, network="1Gbps", slice_mb=0.5)

    assert legs(graph) == [
        ("push", "1"),
        ("push", "0"),
        ("pull", "1"),
        ("pull", "0"),
        ("push", "1"),
        ("pull", "1"),
    ]


def test_servers_of_their_own_have_links_of_their_own() -> None:
    """Pushes and pulls run in both directions at once; both workers share the server's links."""
    graph = p3(host_job(), workers=2, servers=1, network="1Gbps", slice_mb=0.5)
    lanes = graph.tasks.groupby("name", observed=True)["lane"].unique()
    work = graph.tasks["work_ns"][graph.tasks["name"] == "P3 pull"]

    assert len({*lanes["P3 push"], *lanes["P3 pull"]}) == 2
    assert work.tolist() == [round(WIRE_NS_PER_MB)] * 6


def test_slices_of_all_servers_take_what_a_ring_takes() -> None:
    """Four machines that serve as well: 3/4 of the bytes leave a machine twice."""
    graph = p3(host_job(), workers=4, network="1Gbps")
    busy = graph.tasks["work_ns"][graph.tasks["kind"] == "collective"].sum() / graph.steps

    assert busy == pytest.approx(2 * 3 / 4 * 1.5 * WIRE_NS_PER_MB, rel=1e-6)
    assert len(graph.tasks[graph.tasks["name"] == "P3 push"]) == 2 * (3 + 5)


def test_forward_waits_layer_by_layer() -> None:
    """The first layer of the next step starts while the last one's slices are still under way."""
    graph = p3(host_job(), workers=2, network="1Gbps", slice_mb=0.5)
    timeline = replay(graph)
    tasks = graph.tasks.assign(start=timeline.start_ns, end=timeline.end_ns)
    forward = tasks[(tasks["phase"] == "forward") & (tasks["name"] == "mm") & (tasks["step"] == 1)]
    pulls = tasks[(tasks["name"] == "P3 pull") & (tasks["step"] == 0)]
    first, last = (
        forward[forward["module"] == layer].iloc[0] for layer in ("layers.0", "layers.1")
    )
    own, others = (pulls[pulls["module"] == layer] for layer in ("layers.0", "layers.1"))

    assert own["end"].max() <= first["start"] < others["end"].max() <= last["start"]
    assert (
        timeline.step_ns < replay(parameter_server(host_job(), workers=2, network="1Gbps")).step_ns
    )


def test_kernels_wait_on_a_device() -> None:
    """The pulls of a step end before the kernels of the next one that need them."""
    graph = p3(device_job(), workers=2, network="1Gbps", slice_mb=5)
    timeline = replay(graph)
    tasks = graph.tasks.assign(start=timeline.start_ns, end=timeline.end_ns)
    kernels = tasks[(tasks["kind"] == "kernel") & (tasks["phase"] == "forward")]
    pulls = tasks[tasks["name"] == "P3 pull"]

    for layer in ("layers.0", "layers.1"):
        later = kernels[(kernels["module"] == layer) & (kernels["step"] == 1)].iloc[0]
        pull = pulls[(pulls["module"] == layer) & (pulls["step"] == 0)].iloc[0]
        assert pull["end"] <= later["start"]


def test_faster_servers_answer_sooner() -> None:
    """An update at 100 GB/s instead of 10."""
    slow, fast = (
        replay(p3(host_job(), workers=2, servers=1, network="1Gbps", slice_mb=5, server_gbps=rate))
        for rate in (None, 100.0)
    )

    assert slow.step_ns > fast.step_ns


def test_slowest_worker_is_waited_for() -> None:
    """A slice can be pulled when the last worker has pushed it."""
    job = replace(host_job(), step_samples_ns=(9_000_000, 11_000_000) * 4)
    even, late = (
        replay(p3(each, workers=2, servers=1, network="1Gbps", slice_mb=5)).step_ns
        for each in (host_job(), job)
    )

    assert late - even == 500_000


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"workers": 0}, "workers=0 is out of range"),
        ({"servers": 0}, "servers=0 is out of range"),
        ({"server_gbps": -1}, "server_gbps=-1 is out of range"),
        ({"slice_mb": 0}, "slice_mb=0 is out of range"),
        ({"slice_mb": 1e-9}, "slice_mb=1e-09 is too small: over 200,000 slices"),
        ({"network": None}, "nothing says what joins 2 workers"),
    ],
)
def test_absurd_input_gets_one_sentence(changes: dict[str, Any], text: str) -> None:
    """The text names what is wrong."""
    with pytest.raises(TransformError, match=text):
        p3(host_job(), **{"workers": 2, "network": "1Gbps", **changes})


@pytest.mark.parametrize("servers", [None, 2])
@pytest.mark.parametrize("job", [host_job, device_job])
def test_contract(job: Any, servers: int | None) -> None:
    """Input untouched, output valid, the same twice, labelled and explained."""
    changed = check_transform(p3, job(), workers=2, servers=servers, network="1Gbps")

    assert changed.notes[0].startswith("p3: 2 workers exchange 1.5 MB in slices of 0.2 MB over ")
