"""Cluster files: each mistake is one sentence that names the place."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TraceError, TransformError
from foretrace.transforms.cluster.cost_tables import CostEntry, make_table, write_table
from foretrace.transforms.cluster.file import parse_cluster, presets
from foretrace.transforms.cluster.presets import check, load_cluster
from foretrace.transforms.collectives.cost import collective_cost
from tests.support.clusters import BOX
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SOURCED = BOX.replace("gb_per_s = 10", 'gb_per_s = { value = 10, source = "s" }')


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("transport", "transprot", "the file has the unknown key 'transprot'; did you mean 'trans"),
        ("latency_ns", "zzz", "links.nic has the unknown key 'zzz'"),
        ('transport = "nccl"', "", "transport is None, not one of nccl, tcp"),
        ('["a", "b"]', "[]", "'box' has no devices"),
        ('["a", "b"]', '"ab"', "devices is not a list"),
        ("machines = 2", "machines = 0", "machines is 0, expected a whole number"),
        ("machines = 2", "machines = true", "machines is True, expected a whole number"),
        ("gb_per_s = 10", "gb_per_s = -1", "links.bus.gb_per_s of -1: expected a number above 0"),
        ("gb_per_s = 10", "gb_per_s = nan", "links.bus.gb_per_s of nan"),
        ("gb_per_s = 10", "gb_per_s = 0", "links.bus.gb_per_s of 0"),
        ("gb_per_s = 10", 'gb_per_s = "10"', "links.bus.gb_per_s is '10', expected a number"),
        ("gb_per_s = 10", "", "links.bus does not say its gb_per_s"),
        ("gb_per_s = 10", "gb_per_s = 10\nefficiency = 1.5", "efficiency is 1.5, not in"),
        ('medium = "pcie"', 'medium = "ether"', "links.bus.medium is 'ether', not one of"),
        ('link = "bus"', 'link = "nope"', "a wire uses the link 'nope', which .links. lacks"),
        ("count = 2", "count = 1.5", "a wire's count is 1.5"),
        ('["a", "hub"]', '["a"]', "a wire joins two nodes, not .'a'."),
        ('["a", "hub"]', '["a", "a"]', "a wire joins two nodes, not .'a', 'a'."),
        ('["a", "hub"]', '["b", "hub"]', "'b' and 'hub' are wired twice"),
        ('["hub", "network"]', '["hub", "x"]', "none of its wires leads to 'network'"),
        ('["a", "hub"]', '["a", "c"]', "'box' is disconnected: no way from 'a' to 'b'"),
        ("[links.bus]", "[links]\nbus = 3\n[links.other]", "links.bus is not a table"),
        ("machines = 2", "machines = 2\nwire = 3\n#", "wire is not a list"),
        ("machines = 2", "machines = 2\ntable = 3", "table is 3, expected the name of a file"),
        ("machines = 2", "machines = 2\nhost.wake = 3", "host has the unknown key 'wake'; did you"),
        (
            "gb_per_s = 10",
            "gb_per_s = 1" + "0" * 400,
            "links.bus.gb_per_s is out of range; exp",
        ),
        ("latency_ns = 2000", "latency_ns = 1e300", "links.nic.latency_ns is out of range; expect"),
        ('["a", "b"]', '["a", "a"]', "devices has 'a' more than once"),
        ('["a", "b"]', "[1, 2]", "a device is called by a name of its own, not 1"),
        ('["a", "b"]', '["a", "network"]', "by a name of its own, not 'network'"),
        ('[["hub", "network"]]', "5", "a wire's pairs is not a list"),
        ('["hub", "network"]', '[["hub"], "network"]', "a wire joins two nodes, not .."),
        ('link = "bus"', 'link = ["bus"]', "a wire uses the link .'bus'., which .links. lacks"),
        (
            "gb_per_s = 10",
            "gb_per_s = { value = 10, source = [1] }",
            r"links.bus.gb_per_s names the source .1., which",
        ),
        ("machines = 2", "machines = 2\nhost.contention = 3", "host.contention is not a list"),
        (
            "machines = 2",
            "machines = 2\nhost.contention = [{gbit = 1, compute = 1.5, transfer = 1}]",
            "host.contention at 1 Gbit/s has a speed above 1",
        ),
        (
            "machines = 2",
            "machines = 2\nhost.contention = [{gbit = 1, compute = 0.5}]",
            "host.contention.transfer is None, expected a number",
        ),
    ],
)
def test_mistakes(old: str, new: str, said: str) -> None:
    """One thing wrong at a time."""
    assert old in BOX
    text = BOX.replace(old, new, 1)
    if "wire = 3" in new:
        text = text[: text.index("[[wire]]")]
    with pytest.raises(TransformError, match=said):
        check(parse_cluster(text, "box"))


@pytest.mark.parametrize("text", ["= 3", "a = 1" + "0" * 5000, "a = " + "[" * 10_000])
def test_what_is_no_toml(text: str) -> None:
    """The parser's own words are kept."""
    with pytest.raises(TransformError, match="cluster 'box' is no TOML: "):
        parse_cluster(text, "box")


def test_a_huge_file_is_no_cluster(tmp_path: Path) -> None:
    """It is refused before it is parsed."""
    (tmp_path / "box.toml").write_text("#" * ((1 << 20) + 1), "utf-8")
    with pytest.raises(TransformError, match=r"box\.toml: 1,048,577 bytes, more than 1,048,576"):
        load_cluster(str(tmp_path / "box.toml"))


def test_tables_beside_presets_are_no_presets() -> None:
    """The folder also holds measured tables."""
    assert "shaped-links" in presets()
    assert not [name for name in presets() if "." in name]


def test_sources_must_exist() -> None:
    """A figure may name a source, which [sources] must have."""
    with pytest.raises(TransformError, match=r"names the source 's', which \[sources\] lacks"):
        parse_cluster(SOURCED, "box")

    found = parse_cluster(SOURCED + '\n[sources]\ns = "a book"\n', "box")
    assert found.sources == {"links.bus.gb_per_s": "a book"}


def test_levels_are_read() -> None:
    """Racks of two machines, pods of four."""
    text = BOX + "".join(
        f'\n[[level]]\nname = "{name}"\nmachines = {machines}\nuplink = "nic"\ncount = 3\n'
        for name, machines in (("rack", 2), ("pod", 4))
    )
    found = check(parse_cluster(text, "box"))

    assert [(level.name, level.machines, level.count) for level in found.levels] == [
        ("rack", 2, 3),
        ("pod", 4, 3),
    ]


def test_levels_must_nest() -> None:
    """A pod of three machines cannot hold racks of two."""
    text = BOX + "".join(
        f'\n[[level]]\nmachines = {machines}\nuplink = "nic"\n' for machines in (2, 3)
    )

    with pytest.raises(TransformError, match=r"levels join \[2, 3\] machines, each must be"):
        check(parse_cluster(text, "box"))


def test_start_of_collectives() -> None:
    """What fitted constants a cluster may carry."""
    found = parse_cluster(BOX + "\n[collectives]\nbase_us = 0\ncopy_gb_per_s = 500\n", "box")

    assert (found.start.base_us, found.start.hop_us, found.start.copy_gb_per_s) == (0, None, 500)


def test_what_communication_costs_hosts() -> None:
    """Waking, buckets, and contention by rising rate whatever the order in the file."""
    text = """
[host]
wake_us = 4000
[[host.contention]]
gbit = 1.0
compute = 0.8
transfer = 0.9
[[host.contention]]
gbit = 0.1
compute = 1.0
transfer = 1.0
"""
    found = parse_cluster(BOX + text, "box").host

    assert (found.wake_us, found.bucket_us) == (4000, 0)
    assert found.contention == ((0.1, 1.0, 1.0), (1.0, 0.8, 0.9))


def test_a_table_lies_beside_its_file(tmp_path: Path) -> None:
    """What it has goes before the form; a file that is not there is named."""
    (tmp_path / "box.toml").write_text('table = "measured.parquet"\n' + BOX, "utf-8")
    with pytest.raises(TraceError, match=r"measured\.parquet: cannot be read"):
        load_cluster(str(tmp_path / "box.toml"))
    write_table(
        make_table([CostEntry("", "", "broadcast", 2, 1000, 70_000.0)]),
        tmp_path / "measured.parquet",
    )
    cost = collective_cost(load_cluster(str(tmp_path / "box.toml")), (0, 1), "broadcast", 1000)

    assert (cost.ns, cost.source) == (70_000, "table")


def test_the_example_of_the_page() -> None:
    """The file that docs/clusters.md shows is one, and placement matters in it as it says."""
    page = (ROOT / "docs" / "clusters.md").read_text("utf-8")
    rack = check(parse_cluster(re.findall(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL)[0], "rack"))
    orders = re.findall(r"collective_cost\(rack, (.*?), \"all_reduce\", 1e8\)", page)
    near, far = (
        collective_cost(rack, devices, "all_reduce", 1e8, algorithm="ring")
        for devices in (range(16), json.loads(re.findall(r"interleaved = (.*)", page)[0]))
    )

    assert orders == ["range(16)", "interleaved"]
    assert rack.sources == {"links.card.gb_per_s": "what the vendor says about the card"}
    busy = [dict(cost.uses)["rack0>"] * cost.ns for cost in (near, far)]
    assert busy[1] == pytest.approx(4 * busy[0])


def test_the_page_lists_every_preset() -> None:
    """By name."""
    page = (ROOT / "docs" / "clusters.md").read_text("utf-8")

    assert [name for name in presets() if f"`{name}`" not in page] == []
