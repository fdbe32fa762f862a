"""Work of a device that a recording lacks: launches that nothing answers, devices not understood.

In: events, host and device tasks of one rank. Out: launches without work, refusals, doubts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import GraphError
from foretrace.graph.infer.events import match_names
from foretrace.graph.infer.tasks.api_calls import LONG_NS
from foretrace.graph.infer.tasks.host_tasks import SYNC_CALLS, WAIT_EVENT_CALLS
from foretrace.graph.infer.tasks.launches import is_launch_task
from foretrace.graph.state import MISSING, Doubt
from foretrace.tracer.data_issues import BY_NAME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretrace.graph.infer.events import Events
    from foretrace.graph.infer.steps.window import StepWindow
    from foretrace.graph.infer.tasks.device_tasks import DeviceTasks
    from foretrace.graph.infer.tasks.host_tasks import HostTasks
    from foretrace.tracer.trace import TraceMeta

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

LOST_SHARE = 0.02
"""Of the launches in the window; with fewer unanswered, a prediction is off by no more."""
UNKNOWN_SHARE = 0.05
"""Of the window that a runtime may spend in calls of unknown meaning."""
NAMED = 3
_RUNTIME = re.compile(
    r"^(cuda|cu[A-Z]|hip|musa|mu[A-Z]|ur[A-Z]|ze[A-Z]|pi[A-Z]|piext|acl)|Loading|^nccl"
)
"""Calls whose names say whether they wait."""
ADVICE = {
    "kineto": (
        "record with torch.profiler's activities CPU and CUDA, "
        "and synchronise before the profiler stops"
    ),
    "nsight": "profile with nsys profile -t cuda,nvtx, and synchronise before it stops",
}
DOUBTED_ISSUES = {
    "foreign_device_work": "foreign-device",
    "times_in_nanoseconds": "time-unit",
    "times_in_longer_units": "time-unit",
    "whole_graphs": "whole-graphs",
}
"""What a reader may find in a file that makes answers doubtful, and the code of the doubt."""


def refuse_missing_work(
    events: Events, host: HostTasks, devices: DeviceTasks, meta: TraceMeta
) -> None:
    """Refuse a recording that launches work on a device and shows none, or no work at all.

    Raises
    ------
    GraphError
        There are launches, long waits, or calls of another runtime, and no device task; or nothing
        but ranges of annotations.
    """
    if len(devices):
        return
    is_empty = not (host.end_ns > host.start_ns).any() and not meta.unprofiled_step_ns
    if len(meta.ranks) == 1 and is_empty:
        raise GraphError(
            f"{meta.source}: it holds named ranges alone, neither calls nor work of a device; "
            + advise(meta)
        )
    launches = is_launch_task(events, host)
    waits = host.is_call & events.named(SYNC_CALLS, host.event)
    waits &= host.end_ns - host.start_ns > LONG_NS
    kinds = (launches, waits, _is_unknown_call(events, host))
    calls: Ints = np.flatnonzero(next((kind for kind in kinds if kind.any()), launches))
    if len(calls):
        raise GraphError(
            f"{meta.source}: {len(calls)} calls ({_list_names(events, host, calls)}) launch work "
            "on a device or wait for it, and none is recorded: the device part is missing; "
            + advise(meta)
        )


def doubt_missing_work(
    events: Events, host: HostTasks, devices: DeviceTasks, window: StepWindow
) -> list[Doubt]:
    """Return the doubts about device work that the window's launches should have led to."""
    within = (host.start_ns >= window.start_ns) & (host.start_ns < window.end_ns)
    launches = np.flatnonzero(within & is_launch_task(events, host))
    lost = np.intersect1d(launches, devices.unanswered)
    doubts = []
    if len(devices) and len(lost) > LOST_SHARE * len(launches):
        step = np.searchsorted(window.starts_ns, host.start_ns[lost], side="right")
        doubts.append(
            Doubt(
                MISSING,
                f"{len(lost)} of {len(launches)} launches in the window have no device work in the "
                "recording, which ended before the device was done, or lost events: "
                f"up to {len(lost) / len(launches):.0%} of a step's device time is missing; "
                "record more steps, and synchronise with the device before the profiler stops",
                f"steps {step.min()} to {step.max()} of {window.steps} in the window, "
                + _list_names(events, host, lost),
                len(lost) / len(launches),
            )
        )
    if len(host) and len(devices) and not len(devices.launching):
        doubts.append(
            Doubt(
                "calls-missing",
                f"none of the {len(devices)} tasks of the device names a call that launched it: "
                "what the host waits for, and what waits for the host, is not known; "
                "record the calls, too",
            )
        )
    if devices.is_repeated.any():
        text = (
            "the recording ended before the device came to the recorded steps: the work of the "
            "steps before them is taken for theirs; record more steps, and synchronise with the "
            "device before the profiler stops"
        )
        doubts.append(Doubt(MISSING, text, share=float(devices.is_repeated.mean())))
    unknown = np.flatnonzero(within & _is_unknown_call(events, host))
    spent = int((host.end_ns - host.start_ns)[unknown].sum())
    if spent > UNKNOWN_SHARE * (window.end_ns - window.start_ns):
        doubts.append(
            Doubt(
                "unknown-runtime",
                "the calls of this runtime are not understood: those that wait for the device "
                f"count as work of the host, {spent / window.steps / 1e6:,.3f} ms of a step",
                _list_names(events, host, unknown),
            )
        )
    return doubts


def doubt_file(meta: TraceMeta) -> list[Doubt]:
    """Return the doubts about what the reader of a file had to guess or leave out."""
    return [
        Doubt(code, BY_NAME[name].sentence.format(n=meta.warnings[name]), meta.source)
        for name, code in DOUBTED_ISSUES.items()
        if name in meta.warnings
    ]


def advise(meta: TraceMeta) -> str:
    """Return what to record, in the words of the tool that wrote the file."""
    return ADVICE.get(meta.format, "record the work of the device, too")


def _is_unknown_call(events: Events, host: HostTasks) -> Flags:
    """Tell the calls whose names do not say whether they launch, wait, or neither."""
    understood = [_RUNTIME, SYNC_CALLS, WAIT_EVENT_CALLS]
    names = np.logical_or.reduce([match_names(events.names, pattern) for pattern in understood])
    return host.is_call & ~names[events.name[host.event]] & ~is_launch_task(events, host)


def _list_names(events: Events, host: HostTasks, calls: Ints) -> str:
    names, count = np.unique(events.name[host.event[calls]], return_counts=True)
    most = names[np.argsort(-count, kind="stable")][:NAMED]
    return ", ".join(events.names[name] for name in most.tolist())
