"""Categories of a Kineto file in, kinds of events out; what is no kind of ours is named or refused.

A device whose work is not understood must not turn its job into one of the CPU alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.columns import categorical
from foretrace.tracer.readers.kineto.decode import Arguments, one_line
from foretrace.tracer.trace import EVENT_KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.tracer.data_issues import Tally
    from foretrace.tracer.readers.kineto.decode import KinetoFile

    Rows = NDArray[np.int64]

KIND_OF_CATEGORY = {
    "cpu_op": "op",
    "user_annotation": "annotation",
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
    "cuda_sync": "sync",
    "gpu_user_annotation": "gpu_annotation",
    "python_function": "python",
    "overhead": "overhead",
    "cpu_instant_event": "memory",
    # until 2021
    "Operator": "op",
    "Runtime": "runtime",
    "Kernel": "kernel",
    "Memcpy": "memcpy",
    "Memset": "memset",
}
CALL_CATEGORY = re.compile(r"^\w+_(runtime|driver)$")
"""cuda_runtime and cuda_driver; xpu_runtime, mtia_runtime and whatever comes next."""
NOT_WORK = ("Trace", "cuda_event", "cuda_profiler_range", "gpu_pm_counter", "collective_comm",
            "external_correlation")  # fmt: skip
"""Categories of what is no work: the span of the whole recording, counters, markers."""
DEVICE_CATEGORY = re.compile(
    r"(^|_)(hpu|mtia|npu|tpu|ipu|mlu|gcu|xpu|musa|gpu|privateuse1?|ascend|gaudi|neuron|kernel"
    r"|device)(_|$)",
    re.IGNORECASE,
)
UNNAMED = ("", "None")
PLACE = Arguments(
    single=(
        ("correlation", "correlation"),
        ("stream", "stream"),
        ("other_stream", "Stream Id"),
        ("physical_stream", "Physic Stream Id"),
        ("task_type", "Task Type"),
    )
)
"""Arguments by which work of a device shows, whoever wrote it."""
DEVICE_KINDS = ("kernel", "memcpy", "memset")
COPY_NAME = re.compile(r"memcpy|copy(host|device)", re.IGNORECASE)
FILL_NAME = re.compile("memset", re.IGNORECASE)
OPERATOR_NAME = re.compile(r"^(aten|torch|autograd|c10d)::")
XLA_NAME = re.compile(r"^(hlo|jit_|xla|pjit|XlaModule|TfrtCpu|PjRt|Thunk|fusion)", re.IGNORECASE)
ADVICE = "record with torch.profiler.profile and its activities CPU and CUDA"


def event_kinds(recording: KinetoFile, source: str, tally: Tally) -> np.ndarray:
    """Return the place of each event's kind in `EVENT_KINDS`, or −1.

    Raises
    ------
    TraceError
        No event has a category of torch.profiler, or work of a device is of unknown kind and no
        other device works.
    """
    categories = categorical(recording.columns["cat"])
    names = [*map(str, categories.categories), ""]
    place = {kind: i for i, kind in enumerate(EVENT_KINDS)}
    kinds = [place.get(_kind(name), -1) for name in names]
    kind = np.array(kinds, dtype=np.int8)[categories.codes]
    if not (kind >= 0).any():
        raise TraceError(f"{source}: {_what_it_is(recording, names[:-1])}")
    is_work = np.array([name not in NOT_WORK for name in names])[categories.codes]
    unknown = np.flatnonzero((kind < 0) & is_work)
    if len(unknown):
        kind[unknown] = _unknown_kinds(recording, unknown, source, tally, kind)
    tally.add("unknown_category", int(((kind < 0) & is_work).sum()))
    return kind


def _kind(category: str) -> str:
    return "runtime" if CALL_CATEGORY.match(category) else KIND_OF_CATEGORY.get(category, "")


def _unknown_kinds(
    recording: KinetoFile, rows: Rows, source: str, tally: Tally, kind: np.ndarray
) -> np.ndarray:
    """Tell the work of devices among events of unknown category; refuse it where it is all.

    Work without any category that names its call and its stream is told by its name.
    """
    kinds = np.full(len(rows), -1, np.int8)
    category = np.array(["" if c is None else str(c) for c in recording.select("cat", rows)])
    found = recording.arguments(rows, PLACE)
    has = {name: np.array([value not in (-1, None) for value in found[name]]) for name in found}
    unnamed = np.isin(category, UNNAMED)
    told = unnamed & has["stream"] & has["correlation"]
    names = [str(name) for name in recording.select("name", rows[told])]
    kinds[told] = [EVENT_KINDS.index(_kind_of_work(name)) for name in names]
    tally.add("uncategorised_work", int(told.sum()))
    by_name = np.array([bool(DEVICE_CATEGORY.search(each)) for each in category])
    on_stream = has["stream"] | has["other_stream"] | has["physical_stream"]
    foreign = ~told & (by_name | on_stream | has["task_type"])
    if not foreign.any():
        return kinds
    known = [EVENT_KINDS.index(each) for each in DEVICE_KINDS]
    if not (np.isin(kind, known).any() or told.any()):
        raise TraceError(
            f"{source}: {int(foreign.sum())} events of {_listed(category[foreign])} are work of a "
            "device that is not understood, and no other device works: any answer would treat "
            "this as a job of the CPU alone"
        )
    tally.add("foreign_device_work", int(foreign.sum()))
    return kinds


def _kind_of_work(name: str) -> str:
    if COPY_NAME.search(name):
        return "memcpy"
    return "memset" if FILL_NAME.search(name) else "kernel"


def _listed(categories: np.ndarray) -> str:
    names = [name or "none" for name in np.unique(categories).tolist()][:3]
    return f"categor{'ies' if len(names) > 1 else 'y'} {one_line(names)}"


def _what_it_is(recording: KinetoFile, categories: list[str]) -> str:
    """Say of a file without any category of torch.profiler what it may be."""
    count = len(recording.columns["name"])
    if not count:
        return "it holds no events; was the profiler stopped too early?"
    foreign = sorted(name for name in categories if name not in (*NOT_WORK, *UNNAMED))
    if foreign:
        return (
            f"none of its {count} events has a category that torch.profiler "
            f"writes (found {one_line(foreign[:3])}); it is another tool's timeline"
        )
    if NOT_WORK[0] in categories:
        return "it holds no events; was the profiler stopped too early?"
    names = dict.fromkeys(map(str, recording.columns["name"]))
    processes = [str(pid) for pid in dict.fromkeys(recording.columns["pid"])]
    if any(OPERATOR_NAME.match(n) for n in names) or any("functions" in p for p in processes):
        return (
            f"none of its {count} events has a category: an export of the older "
            "torch.autograd.profiler, which does not say what launched what; " + ADVICE
        )
    maker = "JAX or XLA" if any(XLA_NAME.match(n) for n in names) else "another tool"
    return f"none of its {count} events has a category: a timeline of {maker}; {ADVICE}"
