"""Why a step takes longer: parts that add up, tables, doubts, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.analysis.difference.difference import Difference, diff
from foretrace.errors import RefusedError
from foretrace.graph.build import build
from foretrace.report.forms import as_json, as_text
from foretrace.tracer.trace import Device
from tests.support.recordings.events import Row, call, kernel, op, steps, sync, trace

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

STEPS = 6


def recorded(
    gemm: float = 100, host: float = 10, extra: int = 0, *, gap: float = 7, **meta: Any
) -> Graph:
    """Build the graph of a job that waits for a product and a reduction in every step; in µs."""
    rows: list[Row] = []
    at, number = 0.0, 1
    device = gap
    for name, takes in [("sgemm", gemm), ("reduce", 50), *[("mine", 40)] * extra]:
        rows += [op(f"aten::{name}", at, host), call(at + 1, 5, number)]
        device = max(device, at + 1 + gap)
        rows.append(kernel(device, takes, number, name=f"{name}_kernel"))
        at, number, device = at + host, number + 1, device + takes
    end = max(device, at) + 5
    rows.append(sync(at, end))
    length = end + 10
    return build(trace(steps(STEPS, length, rows), **meta))


def part(found: Difference, cause: str) -> float:
    """Return what *cause* adds."""
    return next(each.ns for each in found.parts if each.cause == cause)


def test_parts_add_up_to_the_measured_difference() -> None:
    """Also where several things differ, and what is not explained is a part of the sum."""
    found = diff(recorded(), recorded(gemm=300, host=30, extra=2))

    whole = sum(each.ns for each in found.parts) + found.unexplained_ns
    assert whole == pytest.approx(found.difference_ns, rel=1e-9)
    assert found.difference_ns > 0


def test_slower_kernel_is_the_largest_part() -> None:
    """200 µs more of a product on the critical path are 200 µs of kernels."""
    found = diff(recorded(gemm=100), recorded(gemm=300))

    assert found.parts[0].cause == "kernels"
    assert found.parts[0].ns == pytest.approx(200_000, rel=0.01)
    low, high = found.parts[0].interval_ns
    assert low <= 200_000 <= high


def test_faster_is_a_negative_part() -> None:
    """The same two the other way round."""
    assert part(diff(recorded(gemm=300), recorded(gemm=100)), "kernels") < -190_000


def test_new_operators_are_work() -> None:
    """Three kernels of 40 µs that the job did not run before."""
    found = diff(recorded(), recorded(extra=3))
    kernels = next(table for table in found.tables if table.by == "kernel")

    assert found.parts[0].cause == "work"
    assert kernels.rows[0].name == "mine_kernel"
    assert kernels.rows[0].what == "new"
    assert kernels.rows[0].count == (0, 3)
    assert kernels.rows[0].device_ns == pytest.approx((0, 120_000))


def test_equal_recordings_differ_in_nothing() -> None:
    """No part, no row, and the doubt that there is nothing to explain."""
    graph = recorded()
    found = diff(graph, graph)

    assert [each.ns for each in found.parts] == [0.0] * 6
    assert {row.what for table in found.tables for row in table.rows} == {""}
    assert [doubt.code for doubt in found.doubts] == ["within-noise"]


def test_other_devices_and_worlds_are_doubted() -> None:
    """And the batch, where both are known."""
    one = recorded(devices=(Device(0, "A100"),), world_size=1, batch_size=8)
    other = recorded(gemm=300, devices=(Device(0, "H100"),), world_size=2, batch_size=16)

    codes = {doubt.code for doubt in diff(one, other).doubts}
    assert codes >= {"other-device", "other-world", "other-batch"}


def test_different_jobs_are_refused() -> None:
    """Nothing of one is found in the other."""
    other = recorded()
    names = other.tasks["name"].cat.rename_categories(lambda name: f"foreign_{name}_else")
    operators = other.operators["name"].cat.rename_categories(lambda name: f"foreign_{name}")
    foreign = replace(
        other,
        tasks=other.tasks.assign(name=names),
        operators=other.operators.assign(name=operators),
    )

    with pytest.raises(RefusedError, match="of different jobs"):
        diff(recorded(), foreign)


def test_other_numbers_of_ranks_are_refused() -> None:
    """One rank beside two says nothing about either."""
    two = recorded()
    two = replace(two, meta=replace(two.meta, ranks=(0, 1)))

    with pytest.raises(RefusedError, match="1 and 2 ranks"):
        diff(recorded(), two)


def test_ranks_of_one_job_are_compared() -> None:
    """Whatever their numbers are."""
    rank = recorded(gemm=300)
    rank = replace(rank, lanes=rank.lanes.assign(rank=3), meta=replace(rank.meta, ranks=(3,)))

    assert diff(recorded(), rank).parts[0].cause == "kernels"


def test_report_has_every_part_and_sums_the_rest() -> None:
    """Text shows ten rows of a table and the sum of the others; JSON has all."""
    found = diff(recorded(), recorded(gemm=300, extra=1))
    text, keys = as_text(found), json.loads(as_json(found))

    assert all(f"  {each.cause} " in text for each in found.parts)
    assert "not explained" in text
    parts = sum(each["ms"] for each in keys["parts"]) + keys["unexplained_ms"]
    assert parts == pytest.approx(keys["difference_ms"], abs=1e-5)
    assert {"kernel", "operator", "phase"} <= keys["tables"].keys()
    assert repr(found).startswith("<Difference of ")
