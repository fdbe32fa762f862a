"""The device table: recorded names find their row, every figure has a source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.errors import TransformError
from foretrace.tracer.trace import Device
from foretrace.transforms.costs.devices import (
    attention_share,
    device_named,
    devices,
    find_device,
    hardware,
)
from tests.support.jobs.simple import gpu_job


@pytest.mark.parametrize(
    ("recorded", "name"),
    [
        ("Tesla V100-DGXS-32GB", "V100-DGXS"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2"),
        ("Tesla V100-PCIE-16GB", "V100-PCIE"),
        ("NVIDIA A100-PG509-200", "A100-SXM4-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H800", "H800"),
        ("NVIDIA B200", "B200"),
        ("Tesla P100-SXM2-16GB", "P100-SXM2"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("AMD Instinct MI250X", "MI250X"),
        ("AMD EPYC 7763 64-Core Processor", "generic CPU"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("Quadro GP100", "Quadro GP100"),
        ("AMD Instinct MI210", "MI210"),
        ("AMD Radeon Graphics", "MI250"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("AMD Instinct MI325X", "MI325X"),
        ("AMD Instinct MI355X", "MI355X"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GB300", "GB300"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
    ],
)
def test_a_recorded_name_finds_its_device(recorded: str, name: str) -> None:
    """Every device of the public recordings is in the table."""
    assert device_named(recorded).name == name


def test_every_figure_names_its_source() -> None:
    """No figure without a datasheet or whitepaper behind it."""
    for _, device in devices():
        assert device.figures.keys() == device.sources.keys()
        assert all(device.sources.values())
        assert device.memory_gbps


def test_an_unknown_device_is_named() -> None:
    """The error lists what the table has."""
    assert find_device("Abacus 3000") is None
    with pytest.raises(
        TransformError, match=r"device 'Abacus 3000' is not in the table; it has P100"
    ):
        device_named("Abacus 3000")


def test_the_device_in_use_counts() -> None:
    """A recording lists all devices of the node; the lanes say which one worked."""
    graph = gpu_job()
    other = Device(3, "NVIDIA H100 PCIe")
    found = hardware(replace(graph, meta=replace(graph.meta, devices=(other, *graph.meta.devices))))

    assert found is not None
    assert found.name == "A100-SXM4-80GB"
    assert hardware(replace(graph, meta=replace(graph.meta, devices=()))) is None


def test_attention_kernels_need_their_generation() -> None:
    """Flash attention does not run on Volta, newer rows win, and a vendor's are its own."""
    assert attention_share("flash2", device_named("V100")) is None
    assert attention_share("flash2", device_named("A100")) == 0.53
    assert attention_share("flash2", device_named("H100")) == 0.35
    assert attention_share("flash2", device_named("MI300X")) == 0.20
    assert attention_share("flash3", device_named("MI300X")) is None


def test_a_figure_that_is_not_public_is_refused() -> None:
    """The SMs of a B300 are in no datasheet: nothing is guessed."""
    b300 = device_named("B300")

    assert b300.peak("fp4") == 13_500
    with pytest.raises(TransformError, match="no public figure tells the sm_count of B300"):
        b300.figures["sm_count"]
