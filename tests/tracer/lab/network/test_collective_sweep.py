"""Collectives timed between processes of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.cli.app import run
from foretrace.errors import RecordError
from foretrace.tracer.lab.network import collective_sweep
from foretrace.tracer.lab.network.loopback import Loopback
from foretrace.transforms.cluster.cost_tables import read_table
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import collective_cost

if TYPE_CHECKING:
    from pathlib import Path


def test_the_loopback_device_is_a_network_without_limits() -> None:
    """Every rank has its address, commands run as they are, and two ports are never one."""
    network, other = Loopback(2), Loopback(2)
    network.shape(300)

    assert [network.address(rank) for rank in network.ranks] == ["127.0.0.1"] * 2
    assert network.inside(1, ["true"]) == ["true"]
    assert network.port != other.port or network.port > 1024
    assert network.drops() == 0


def test_a_sweep_becomes_a_table_that_costs_are_taken_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two processes, every kind, one size: what `calibrate --collectives` writes."""
    pytest.importorskip("torch")
    monkeypatch.setattr(collective_sweep, "SIZES", (65_536,))
    monkeypatch.setattr("foretrace.cli.calibrate.EACH_SECONDS", 0.01)
    out = tmp_path / "costs.parquet"

    assert run(["calibrate", "--collectives", "--out", str(out)]) == 0
    assert "all_gather of 2 ranks, 1 sizes" in capsys.readouterr().out
    entries = read_table(out).entries
    assert sorted(entries["kind"]) == [
        "all_gather", "all_reduce", "broadcast", "reduce_scatter", "send",
    ]  # fmt: skip
    assert set(entries["topology"]) == {"tcp, 1 in a machine, 9.6 Gbit/s"}
    cost = collective_cost(
        load_cluster("this-machine"), (0, 1), "send", 65_536, table=read_table(out)
    )
    assert cost.source == "table"
    assert cost.ns == pytest.approx(entries["ns"][entries["kind"] == "send"].iloc[0], abs=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--collectives needs --out FILE"),
        (["--out", "nowhere/costs.parquet"], "nowhere"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_timed(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence."""
    assert run(["calibrate", "--collectives", *arguments]) == 1
    assert text in capsys.readouterr().err


def test_nccl_needs_a_gpu_per_rank() -> None:
    """It refuses two ranks on one."""
    pytest.importorskip("torch")
    count = collective_sweep.count_gpus() + 1

    with pytest.raises(RecordError, match=f"NCCL among {count} ranks needs as many GPUs"):
        collective_sweep.sweep_collectives(count, backend="nccl")


def test_shaped_links_need_what_namespaces_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are none, the reason is given."""
    monkeypatch.setattr(collective_sweep, "unavailable", lambda: "network namespaces need root")

    with pytest.raises(RecordError, match="no shaped network here: network namespaces need root"):
        collective_sweep.sweep_collectives(2, mbit=300)


@pytest.mark.usefixtures("namespaces")
def test_a_sweep_over_shaped_links_is_as_slow_as_they_are() -> None:
    """1 MiB at 1 Gbit/s with the frames' headers takes at least 8.6 ms, less the credit of 1.05."""
    pytest.importorskip("torch")
    costs = collective_sweep.sweep_collectives(2, mbit=1000, seconds=0.02, sizes=[1 << 20])
    send = next(cost for cost in costs if cost.kind == "send")

    assert send.rate_mbit == 1000
    assert send.ns > 7.6e6
