"""Servers: which links workers share, together and alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.graph.literal import literal
from foretrace.transforms.cluster.placement import Placement
from foretrace.transforms.cluster.presets import ethernet
from foretrace.transforms.distributed.common.server_cost import ServerPlacement, update_ns

NS_PER_BYTE = 8 * 1514 / 1448  # at 1 Gbit/s


def servers(
    workers: int, *serving: int, ingress: bool = True, machines: int = 6
) -> ServerPlacement:
    """Return workers 0 … and the devices that serve, each host at 1 Gbit/s."""
    placed = Placement(ethernet(machines, 1.0), tuple(range(machines)))
    return ServerPlacement(placed, tuple(range(workers)), serving, ingress)


@pytest.mark.parametrize(
    ("workers", "serving", "times"), [(1, (4,), 1), (3, (4,), 3), (4, (4, 5), 2)]
)
def test_links_of_the_servers_are_shared(
    workers: int, serving: tuple[int, ...], times: int
) -> None:
    """Workers per server, in both directions."""
    job = servers(workers, *serving)

    assert job.apart
    assert job.push_ns_per_byte(together=True) == pytest.approx(times * NS_PER_BYTE)
    assert job.pull_ns_per_byte(together=True) == pytest.approx(times * NS_PER_BYTE)
    assert job.push_ns_per_byte(together=False) == pytest.approx(NS_PER_BYTE)


def test_only_what_is_sent_may_be_limited() -> None:
    """Pushes then take a worker's own link, pulls that of the server."""
    job = servers(3, 4, ingress=False)

    assert job.push_ns_per_byte(together=True) == pytest.approx(NS_PER_BYTE)
    assert job.pull_ns_per_byte(together=True) == pytest.approx(3 * NS_PER_BYTE)


def test_machines_that_serve_as_well_keep_their_own_share() -> None:
    """Four machines: 3/4 of what each pushes leaves it."""
    job = servers(4, 0, 1, 2, 3)

    assert not job.apart
    assert job.push_ns_per_byte(together=True) == pytest.approx(0.75 * NS_PER_BYTE)


def test_one_machine_alone_sends_nothing() -> None:
    """It is its own server."""
    job = servers(1, 0)

    assert (job.push_ns_per_byte(together=True), job.start_ns) == (0, 0)
    assert servers(2, 4).start_ns == 65_000


def test_update_adds_up_what_came() -> None:
    """8 passes for one gradient; for two, they are stacked and their mean is taken before: 7.

    An update runs from the caches of the probed machine, copies do not.
    """
    graph = literal([("a", "host", 0, 5, None)])

    probed = replace(graph, meta=replace(graph.meta, machine={"copy_gbps": 20, "update_gbps": 50}))

    assert [update_ns(graph, 1e6, gradients) for gradients in (1, 2)] == [800_000, 1_500_000]
    assert [update_ns(probed, 1e6, gradients) for gradients in (1, 2)] == [160_000, 510_000]
