"""Pairs about several workers vouch for jobs of their own kind only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy.error_table import error_table
from foretrace.analysis.prediction import predict
from foretrace.analysis.validated_errors import combine, load_table
from foretrace.analysis.validation_scope import describe_setting, is_within
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

    assert table["gpu"]["rule"]["ddp"]["where"] == ["here"]
    assert combine(made, table, "gpu", "here").missing == ()
    assert combine(made, table, "gpu", "there").missing == ("ddp",)


def test_four_numbers_of_one_cluster_do_not_validate_every_cluster() -> None:
    """From four to eight A100 of Perlmutter it was compared; from one, or elsewhere, it was not."""
    assert load_table()["gpu"]["rule"]["ddp"]["where"] == [
        "several workers before, A100, slingshot"
    ]

    moved = predict(of_four(), parse_scenario([MORE]))
    assert not any("validated ddp" in note for note in moved.warnings)
    for graph, what_if in (
        (gpu_job(), 'ddp(workers=8, cluster="dgx-a100")'),
        (of_four(), 'ddp(workers=16, recorded_workers=4, cluster="dgx-h100")'),
    ):
        found = predict(graph, parse_scenario([what_if]))
        assert found.status == "unvalidated"
        assert any("ddp on this kind of hardware and network" in note for note in found.warnings)
