"""Ways, rates and latencies in a cluster's wiring, and the class that tables know it by."""

from __future__ import annotations

import pytest

from foretrace.transforms.cluster.file import parse_cluster
from foretrace.transforms.cluster.presets import ethernet, load_cluster
from foretrace.transforms.cluster.topology import (
    by_machine,
    exit_rate,
    fabric,
    hop_inside,
    hop_outside,
    levels_crossed,
    nics,
    topology_of,
    way,
)
from tests.support.clusters import BOX

MESH, SWITCH, BUS = (load_cluster(name, 2) for name in ("dgx-1v", "dgx-a100", "pcie-box"))


def test_the_fabric_inside_a_machine() -> None:
    """Direct links, a switch, PCIe only, or hosts on Ethernet."""
    assert [fabric(c) for c in (MESH, SWITCH, BUS, ethernet(2, 1.0))] == [
        "mesh",
        "switch",
        "pcie",
        "tcp",
    ]


def test_ways_take_the_fastest_links() -> None:
    """NVSwitch rather than the PCIe switch below it; over both sockets where nothing else is."""
    assert way(SWITCH, "gpu0", "gpu1") == ("gpu0", "nvswitch", "gpu1")
    assert way(MESH, "gpu0", "gpu3") == ("gpu0", "gpu3")
    assert way(BUS, "gpu0", "gpu4") == ("gpu0", "plx0", "cpu0", "cpu1", "plx1", "gpu4")


def test_a_shared_neighbour_forwards() -> None:
    """Between GPUs without a link of their own, over the neighbour with the most links."""
    assert way(MESH, "gpu0", "gpu7") == ("gpu0", "gpu4", "gpu7")


def test_what_a_group_can_send_outside() -> None:
    """One GPU is held by its PCIe lanes, all of them by the NICs; no other device forwards."""
    pcie, nic = 31.5 * 0.76, 25 * 0.96

    assert exit_rate(SWITCH, ("gpu0",))[0] == pytest.approx(pcie)
    assert exit_rate(SWITCH, SWITCH.devices)[0] == pytest.approx(8 * min(nic, pcie))
    assert exit_rate(load_cluster("perlmutter-2021", 2), ("gpu0",))[0] == pytest.approx(25.0)


def test_devices_by_machine() -> None:
    """Machines as they first occur, devices of one in the machine's order."""
    assert by_machine(SWITCH, (9, 1, 8)) == {1: ("gpu0", "gpu1"), 0: ("gpu1",)}


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        (range(4), "mesh"),
        (range(16), "mesh, 8 in a machine, 400 Gbit/s"),
        ((0, 8), "mesh, 1 in a machine, 400 Gbit/s"),
        ((0, 1, 8), "mesh, uneven machines, 400 Gbit/s"),
    ],
)
def test_classes_of_topology(devices: range, said: str) -> None:
    """By what joins the devices, how many are in a machine, and the machine's network."""
    assert topology_of(MESH, devices) == said


def test_crossing_racks_is_another_class() -> None:
    """Within a rack the uplink does not matter."""
    racks = ethernet(4, 1.0, racks=2, uplink_gbit=0.3)

    assert topology_of(racks, (0, 1)) == "tcp, 1 in a machine, 1 Gbit/s"
    assert topology_of(racks, (0, 2)) == "tcp, 1 in a machine, 1 Gbit/s, across racks"
    assert levels_crossed(racks, (2, 3)) == []


def test_hops() -> None:
    """Medium and latency inside a machine, latency between two, there and back down."""
    box = parse_cluster(BOX, "box")

    assert hop_inside(SWITCH, (0, 1)) == ("nvlink", 0)
    assert hop_inside(BUS, (0, 4)) == ("pcie", 0)
    assert hop_outside(box, (0, 1)) == 0
    assert hop_outside(box, (0, 2)) == 4000


def test_levels_add_their_latency() -> None:
    """Up and down the uplinks that are crossed."""
    slow = BOX + '\n[[level]]\nname = "rack"\nmachines = 1\nuplink = "nic"\n'

    assert hop_outside(parse_cluster(slow, "box"), (0, 2)) == 8000


def test_a_machine_without_network_has_no_nics() -> None:
    """It is a cluster of one."""
    alone = BOX[: BOX.rindex("[[wire]]")].replace("machines = 2", "")

    assert nics(parse_cluster(alone, "box")) == []
