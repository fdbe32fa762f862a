"""Which cluster workers run on, and where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import gigabits, outside_gb_per_s, place_workers
from foretrace.transforms.cluster.presets import ethernet, load_cluster


@pytest.mark.parametrize(
    ("text", "gbit"),
    [
        ("25Gbps", 25.0),
        ("100 Mbit", 0.1),
        ("300Mbit/s", 0.3),
        ("12.5 GB/s", 100.0),
        ("1.6tbps", 1600.0),
    ],
)
def test_rates_are_read_in_bits_and_bytes(text: str, gbit: float) -> None:
    """A capital B counts bytes."""
    assert gigabits(text) == pytest.approx(gbit)


@pytest.mark.parametrize("text", ["fast", "25", "0Gbps", "1.2.3Gbps", "-5Gbps", "25Gbps!", 25])
def test_what_is_no_rate_is_refused(text: Any) -> None:
    """One sentence with an example."""
    with pytest.raises(TransformError, match='write one as in network="25Gbps"'):
        gigabits(text)


def test_a_network_alone_joins_machines_of_one_device() -> None:
    """Four workers, four machines."""
    placed = place_workers(4, network="25Gbps")

    assert (placed.cluster.machines, placed.devices) == (4, (0, 1, 2, 3))
    assert outside_gb_per_s(placed.cluster) == pytest.approx(25 / 8)


def test_workers_fill_machine_after_machine() -> None:
    """Sixteen on two boxes of eight; four in each of four when so asked."""
    assert place_workers(16, cluster="dgx-a100").devices == tuple(range(16))
    assert place_workers(16, cluster="dgx-a100").cluster.machines == 2
    spread = place_workers(4, cluster="dgx-a100", nodes=2)
    assert spread.devices == (0, 1, 8, 9)


def test_a_network_replaces_that_of_the_cluster() -> None:
    """Both may be given."""
    placed = place_workers(16, cluster="dgx-a100", network="100Gbps")

    assert outside_gb_per_s(placed.cluster) == pytest.approx(12.5)


def test_a_cluster_may_be_given_as_such() -> None:
    """From Python."""
    assert place_workers(3, cluster=ethernet(4, 1.0)).devices == (0, 1, 2)


def test_workers_may_be_placed_by_hand() -> None:
    """In the order of the ring."""
    assert place_workers(2, cluster="dgx-a100", placement=[5, 0]).devices == (5, 0)


def test_a_machine_alone_has_no_links_outside() -> None:
    """Nothing to count."""
    machine = load_cluster("dgx-a100")
    alone = replace(machine, machine=machine.machine.subgraph(machine.devices))

    assert outside_gb_per_s(alone) == 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"workers": 0, "network": "1Gbps"}, "workers=0 is out of range"),
        ({"workers": 2.5, "network": "1Gbps"}, "workers=2.5 is out of range"),
        ({"workers": 2}, "nothing says what joins 2 workers"),
        ({"workers": 2, "cluster": "dgx-a200"}, "did you mean 'dgx-a100'"),
        ({"workers": 10**9, "network": "1Gbps"}, "1,000,000,000 workers are more than any cluster"),
        ({"workers": 2, "cluster": 5}, "cluster=5 is neither a preset nor a file"),
        ({"workers": 2, "network": "1Gbps", "nodes": 0}, "nodes=0 is out of range"),
        ({"workers": 3, "cluster": "dgx-a100", "nodes": 2}, "3 workers do not fill 2 nodes evenly"),
        ({"workers": 9, "cluster": "dgx-a100"}, "9 workers do not fill machines with 8 each"),
        ({"workers": 3, "cluster": ethernet(2, 1.0)}, "3 workers need 3 machines"),
        (
            {"workers": 2, "cluster": "dgx-a100", "placement": [0]},
            "does not name a device for each",
        ),
        ({"workers": 2, "cluster": "dgx-a100", "placement": 5}, "does not name a device for each"),
        ({"workers": 2, "cluster": "dgx-a100", "placement": [0, 8]}, "has 0 to 7"),
        ({"workers": 2, "cluster": "dgx-a100", "placement": [0, "1"]}, "names device '1'"),
        ({"workers": 2, "cluster": "dgx-a100", "placement": [3, 3]}, "names a device twice"),
    ],
)
def test_absurd_requests_get_one_sentence(given: dict[str, Any], text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(TransformError, match=text) as raised:
        place_workers(given.pop("workers"), **given)
    assert "\n" not in str(raised.value)


def test_a_rate_may_come_with_the_burst_of_a_shaped_link() -> None:
    """It goes to the links of a preset as well as to hosts with one device each."""
    shaped = place_workers(2, cluster="shaped-links", network="300Mbps, burst 256KiB").cluster
    plain = place_workers(2, network="1Gbps, burst 32kB").cluster
    as_before = place_workers(2, cluster="shaped-links", network="300Mbps").cluster

    bursts = [
        data["link"].burst_bytes
        for cluster in (shaped, plain, as_before)
        for *_, data in cluster.machine.edges(data=True)
    ]
    assert bursts == [262_144, 32_000, 131_072]


@pytest.mark.parametrize("text", ["300Mbps, bursts 1MB", "300Mbps, burst", "300Mbps, burst -1KB"])
def test_what_is_no_burst_is_refused(text: str) -> None:
    """The sentence shows how one is written."""
    with pytest.raises(TransformError, match='network="300Mbps, burst 128KiB"'):
        place_workers(2, network=text)
