"""Clusters: presets, files and helpers; what is impossible is said in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx
import pytest

from foretrace.errors import TransformError
from foretrace.transforms.cluster.file import parse_cluster, presets
from foretrace.transforms.cluster.presets import ethernet, load_cluster
from foretrace.transforms.costs.devices import find_device
from tests.support.clusters import BOX

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", presets())
def test_presets_are_whole(name: str) -> None:
    """Every figure names its source, the device is known, and everything hangs together."""
    cluster = load_cluster(name, nodes=2)
    links = {data["link"] for *_, data in cluster.machine.edges(data=True)}

    assert nx.is_connected(cluster.graph)
    assert all(cluster.sources[f"links.{link.name}.gb_per_s"] for link in links)
    assert not cluster.device or find_device(cluster.device)


@pytest.mark.parametrize(
    ("name", "devices", "exit_gb_per_s"),
    [
        ("dgx-1v", 8, 50.0),
        ("dgx-a100", 8, 200.0),
        ("dgx-h100", 8, 400.0),
        ("perlmutter-2021", 4, 25.0),
        ("perlmutter-2022", 4, 100.0),
        ("cloud-25g", 8, 3.125),
        ("cloud-100g", 8, 12.5),
    ],
)
def test_what_leads_out_of_a_machine(name: str, devices: int, exit_gb_per_s: float) -> None:
    """Number of devices, and the nominal rate of all NICs together."""
    cluster = load_cluster(name)
    edges = cluster.machine.edges("network", data=True)

    assert len(cluster.devices) == devices
    assert sum(d["link"].gb_per_s * d["count"] for *_, d in edges) == exit_gb_per_s


def test_a_file_becomes_a_cluster(tmp_path: Path) -> None:
    """Plain figures need no source; the file's name is the cluster's."""
    (tmp_path / "box.toml").write_text(BOX, "utf-8")
    cluster = load_cluster(str(tmp_path / "box.toml"))

    assert (cluster.name, cluster.size, cluster.place(3)) == ("box", 4, (1, "b"))
    assert cluster.graph.edges["m1.hub", "network"] == {
        "kind": "nic",
        "gb_per_s": 10.0,
        "latency_ns": 2000,
    }


def test_big_clusters_are_one_machine_many_times() -> None:
    """The graph of 16,384 GPUs is made when it is asked for, and once."""
    cluster = load_cluster("dgx-a100", nodes=2048)

    assert cluster.size == 16_384
    assert "graph" not in vars(cluster)
    assert load_cluster("dgx-a100", nodes=2048) is cluster


def test_levels_join_machines() -> None:
    """Two racks of two hosts, each with one uplink to what joins them."""
    cluster = ethernet(4, 1.0, racks=2, uplink_gbit=0.3)

    assert cluster.switches_above(1) == ["rack0"]
    assert sorted(cluster.graph["rack1"]) == ["m2.cpu0", "m3.cpu0", "network"]
    assert cluster.graph.edges["rack0", "network"]["gb_per_s"] == pytest.approx(0.0375)


def test_racks_have_the_hosts_rate_unless_told() -> None:
    """An uplink without a rate is as fast as a host's link."""
    assert ethernet(4, 2.0, racks=2).levels[0].uplink.gb_per_s == 0.25


def test_workers_fill_machine_after_machine() -> None:
    """By default all devices of each machine, or so many as asked for."""
    cluster = load_cluster("dgx-1v", nodes=3)

    assert cluster.packed(3) == (0, 1, 2)
    assert cluster.packed(4, per_machine=2) == (0, 1, 8, 9)


@pytest.mark.parametrize(
    ("workers", "per_machine", "said"),
    [
        (0, None, "0 workers"),
        (2, 0, "0 in each machine"),
        (3, 3, "has 2 devices, 3 were asked for"),
        (3, None, "3 workers do not fill machines with 2 each"),
        (6, None, "6 workers need 3 machines of cluster 'box', it has 2: load it with nodes=3"),
    ],
)
def test_workers_that_do_not_fit(workers: int, per_machine: int | None, said: str) -> None:
    """Three GPUs in two-GPU machines, and the like."""
    with pytest.raises(TransformError, match=said):
        parse_cluster(BOX, "box").packed(workers, per_machine)


def test_another_network() -> None:
    """All NICs of a machine together reach the new rate; the devices keep theirs."""
    other = load_cluster("perlmutter-2021", 2).with_network(gb_per_s=50.0, latency_ns=7)
    nic = other.machine.edges["nic0", "network"]["link"]

    assert (nic.gb_per_s, nic.latency_ns) == (25.0, 7)
    assert other.machine.edges["gpu0", "gpu1"]["link"].gb_per_s == 25.0
    assert load_cluster("perlmutter-2021", 2).with_network(latency_ns=5).size == 8


def test_a_cluster_without_network_has_none_to_change() -> None:
    """It says so."""
    alone = BOX[: BOX.rindex("[[wire]]")].replace("machines = 2", "")

    with pytest.raises(TransformError, match="cluster 'box' has no network"):
        parse_cluster(alone, "box").with_network(gb_per_s=1.0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dgx-a10", "no cluster is called 'dgx-a10': did you mean 'dgx-a100'?"),
        ("q", "no cluster is called 'q': there are cloud-100g, cloud-25g"),
        ("gone.toml", "gone.toml: cannot be read .No such file"),
    ],
)
def test_unknown_names(name: str, said: str) -> None:
    """The nearest preset is named, else all of them."""
    with pytest.raises(TransformError, match=said):
        load_cluster(name)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8."""
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(TransformError, match="no text in UTF-8"):
        load_cluster(str(tmp_path / "x.toml"))


@pytest.mark.parametrize("nodes", [0, -1])
def test_no_machines(nodes: int) -> None:
    """At least one is needed."""
    with pytest.raises(TransformError, match=f"{nodes} machines, at least 1 is needed"):
        load_cluster("dgx-1v", nodes=nodes)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"ranks": 0, "gbit": 1.0}, "0 ranks: at least 1"),
        ({"ranks": 2, "gbit": -1.0}, "gbit of -1"),
        ({"ranks": 2, "gbit": float("nan")}, "gbit of nan"),
        ({"ranks": 2, "gbit": 1.0, "racks": 3}, "2 ranks do not go into 3 racks"),
        ({"ranks": 2, "gbit": 1.0, "racks": 2, "uplink_gbit": 0}, "uplink_gbit of 0"),
    ],
)
def test_impossible_ethernets(arguments: dict[str, float], said: str) -> None:
    """Numbers that no network has."""
    with pytest.raises(TransformError, match=said):
        ethernet(**arguments)  # type: ignore[arg-type]
