"""What is no event of torch.profiler, and what is work of a device that is not understood."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.errors import TraceError
from foretrace.tracer.readers.kineto.read import read_kineto
from tests.support.recordings.bent import Event, base, text


def bend(category: str, **fields: Any) -> dict[str, Any]:
    """Return the base trace with the events of *category* changed; ``None`` takes a field away."""
    root = base()
    for event in root["traceEvents"]:
        if event["cat"] == category:
            event.update(fields)
    root["traceEvents"] = [
        {name: value for name, value in event.items() if value is not None}
        for event in root["traceEvents"]
    ]
    return root


@pytest.mark.parametrize("category", ["hpu_op", "mtia_ccp_events", "npu", "privateuse1_kernel"])
def test_foreign_device_is_refused_by_name(category: str) -> None:
    """A job whose device is not understood is no job of the CPU."""
    with pytest.raises(TraceError, match=f"12 events of category {category} are work of a device"):
        read_kineto(text(bend("kernel", cat=category)), "trace.json")


def test_unknown_category_on_a_stream_is_refused() -> None:
    """Whatever it is called, it names a stream."""
    with pytest.raises(TraceError, match="category quux are work of a device"):
        read_kineto(text(bend("kernel", cat="quux")), "trace.json")


def test_foreign_device_beside_a_known_one_is_counted() -> None:
    """Then the rest can be replayed, in doubt."""
    root = base()
    first = next(e for e in root["traceEvents"] if e["cat"] == "kernel")
    first["cat"] = "npu"

    assert read_kineto(text(root), "trace.json").meta.warnings["foreign_device_work"] == 1


@pytest.mark.parametrize("nothing", [None, ""])
def test_work_without_a_category_is_told_by_its_arguments(nothing: str | None) -> None:
    """A stream and a correlation make it work of a device, its name says which."""
    root = bend("kernel", cat=nothing)
    root["traceEvents"][-2]["name"] = "Memcpy DtoH (Device -> Pageable)"

    trace = read_kineto(text(root), "trace.json")

    kinds = trace.events["kind"].value_counts()
    assert (kinds["kernel"], kinds["memcpy"]) == (11, 1)
    assert trace.meta.warnings["uncategorised_work"] == 12


def test_counters_are_no_work() -> None:
    """Events of CUDA's own that mark or count are left out, and no reason to refuse."""
    root = base()
    extra = {"ph": "X", "name": "cudaEvent", "pid": 0, "tid": 7, "ts": 1010, "dur": 0}
    root["traceEvents"].append(extra | {"cat": "cuda_event", "args": {"stream": 7, "device": 0}})

    warnings = read_kineto(text(root), "trace.json").meta.warnings

    assert "foreign_device_work" not in warnings


def uncategorised(name: str, pid: int | str) -> bytes:
    """Return a trace of five events without categories."""
    events: list[Event] = [
        {"ph": "X", "name": name, "pid": pid, "tid": 1, "ts": 10 * n, "dur": 7, "args": {}}
        for n in range(5)
    ]
    return text(events)


@pytest.mark.parametrize(
    ("name", "pid", "said"),
    [
        ("aten::mul", "CPU functions", "torch.autograd.profiler"),
        ("mul", "CUDA functions", "torch.autograd.profiler"),
        ("jit_train_step", 7, "JAX or XLA"),
        ("work", 7, "another tool"),
    ],
)
def test_file_without_categories_is_named(name: str, pid: int | str, said: str) -> None:
    """Not "no events": what it may be, and what to record instead."""
    with pytest.raises(TraceError, match=rf"none of its 5 events has a category.*{said}"):
        read_kineto(uncategorised(name, pid), "trace.json")


def test_no_event_at_all() -> None:
    """Then the profiler was stopped too early."""
    with pytest.raises(TraceError, match="stopped too early"):
        read_kineto(text({"traceEvents": []}), "trace.json")
