"""Pairs about several workers vouch for jobs of their own kind only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy.error_table import error_table
from foretrace.analysis.evidence.validated_errors import load_table, look_up
from foretrace.analysis.evidence.validation_scope import (
    Place,
    describe_cpu,
    describe_setting,
    is_within,
)
from foretrace.analysis.prediction import predict
from foretrace.tracer.trace import Device
from foretrace.transforms.scenario import apply, parse_scenario
from tests.support.jobs.gradients import cpu_job, gpu_job
from tests.support.jobs.recorded_ddp import recorded_job
from tests.support.measured.pairs import pair

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

A100 = (Device(0, "NVIDIA A100-SXM4-40GB"),)
MORE = 'ddp(workers=8, recorded_workers=4, cluster="perlmutter-2022")'


def at(rate: str) -> str:
    """Return the what-if of two workers."""
    return f"ddp(workers=2, network={rate!r})"


def of_four() -> Graph:
    """Return a rank of a DDP job on A100."""
    job = recorded_job()
    return replace(job, meta=replace(job.meta, devices=A100))


@pytest.mark.parametrize(
    ("graph", "what_if", "found"),
    [
        (cpu_job(), at("300Mbps"), "one worker before, CPU, TCP up to 1 Gbit/s"),
        (cpu_job(), at("1Gbps"), "one worker before, CPU, TCP up to 1 Gbit/s"),
        (cpu_job(), at("2Gbps"), "one worker before, CPU, TCP up to 10 Gbit/s"),
        (gpu_job(), 'ddp(workers=8, cluster="dgx-a100")', "one worker before, A100, one machine"),
        (of_four(), MORE, "several workers before, A100, slingshot"),
        (of_four(), "ddp(workers=4, recorded_workers=4)", "several workers before, A100"),
        (gpu_job(device="Mystery"), "faster_host(speedup=2)", "one worker before, another device"),
    ],
)  # fmt: skip
def test_the_setting_names_start_device_and_links(graph: Graph, what_if: str, found: str) -> None:
    """A rate over TCP counts by its decade, a network by its links."""
    assert describe_setting(graph, apply(graph, parse_scenario([what_if]))) == found


def test_the_recorded_network_is_no_other() -> None:
    """Where a job stays on its network, start and device have to be alike."""
    known = ["several workers before, A100, slingshot"]

    assert is_within("several workers before, A100", known)
    assert is_within(known[0], known)
    assert not is_within("several workers before, A10", known)
    assert not is_within("several workers before, A100, one machine", known)


def test_an_error_holds_where_it_was_measured() -> None:
    """Elsewhere the what-if is named as untested; pairs that name no setting hold everywhere."""
    rows = [pair(name, 0.1, transforms=("ddp",), where="here") for name in "ab"]
    table = error_table([*rows, *(pair(name, 0.1) for name in "cd")])
    made = [("ddp", "rule"), ("amp", "rule")]
    here, there = (Place("gpu", "gpu", workers=where) for where in ("here", "there"))

    assert table["gpu"]["rule"]["ddp"]["where"] == ["here"]
    assert look_up(made, table, here).missing == ()
    assert look_up(made, table, there).missing == ("ddp",)


def test_four_numbers_of_one_cluster_do_not_validate_any() -> None:
    """NCCL's cost was tuned on that very job: nothing is validated, there or elsewhere."""
    assert load_table()["gpu"]["rule"]["ddp"]["where"] == [
        "several workers before, A100, slingshot"
    ]

    for graph, what_if, said in (
        (
            of_four(),
            MORE,
            "2 pairs, NVIDIA Ampere, several workers before, A100, slingshot",
        ),
        (gpu_job(), 'ddp(workers=8, cluster="dgx-a100")', "elsewhere 2 pairs"),
        (of_four(), 'ddp(workers=16, recorded_workers=4, cluster="dgx-h100")', "elsewhere 2 pairs"),
    ):
        found = predict(graph, parse_scenario([what_if]))
        assert found.status == "unvalidated"
        assert f"ddp: {said}" in found.evidence[0]
        assert ", tuned on" in found.evidence[0]
        assert any("ddp on this kind of hardware and network" in note for note in found.warnings)


@pytest.mark.parametrize(
    ("machine", "found"),
    [
        ({"cpu": "AMD EPYC", "has_bf16": True}, "AMD CPU with 16-bit products"),
        ({"cpu": "Intel(R) Xeon(R)", "has_bf16": False}, "Intel CPU without 16-bit products"),
        ({"cpu": "AMD EPYC"}, "CPU of unknown instructions"),
        (None, "CPU of unknown instructions"),
    ],
)
def test_a_cpu_is_named_by_vendor_and_instructions(
    machine: dict[str, object] | None, found: str
) -> None:
    """Products in 16 bits come with AVX-512 BF16, AMX or Arm's bf16."""
    job = cpu_job()

    assert describe_cpu(replace(job, meta=replace(job.meta, machine=machine))) == found


def test_the_pace_of_a_gpu_job_is_part_of_its_place() -> None:
    """Kernels a thousand times as fast leave the host in charge; on a CPU there is but one."""
    job = gpu_job()
    kept, turned = (predict(job, f"faster_kernels(speedup={by})").place for by in (1.01, 1000))

    assert (kept and kept.regime, turned and turned.regime) == (
        "device-bound",
        "device-bound, then host-bound",
    )
    assert predict(cpu_job(), "faster_host(speedup=2)").place == Place(
        "cpu", "CPU of unknown instructions"
    )
