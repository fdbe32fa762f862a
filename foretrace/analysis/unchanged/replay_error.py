"""Why an unchanged replay misses the measured step: both in, a doubt with its place out.

"Record again on a quiet machine" helps where noise is the cause, and nowhere else. Elsewhere the
doubt says where recording and replay part, which evidence is missing, and what to record or pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretrace.analysis.unchanged.parting import find_parting
from foretrace.graph.model import DEVICE_KINDS
from foretrace.graph.state import Doubt
from foretrace.graph.views import lane_names
from foretrace.tracer.data_issues import disturbances
from foretrace.tracer.step_stats import drift
from foretrace.util.short_name import short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.analysis.unchanged.parting import Parting
    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

DOUBTFUL = 0.05
"""Where the unchanged replay misses the measured step, that step drifts, or others had the machine,
by more than this share, nothing predicted from the recording counts as validated."""
HOPELESS = 0.5
"""A replay that misses more than this share of a step explains nothing."""
NAME_WIDTH = 60
UNRECORDED = "record every process that uses the device, with CPU and device activities"
UNTRUE = "this rule of the replay does not hold here: a report of it, with the recording, helps"
"""What to do where no evidence is known to be missing."""


def doubt_replay_error(timeline: Timeline, measured: Measured) -> tuple[Doubt, ...]:
    """Say that the unchanged replay misses the measured step, and why; nothing where it does not.

    Noise is the cause where the steps themselves differ by as much.
    """
    off = timeline.step_ns / measured.step_ns - 1
    if not abs(off) > DOUBTFUL:
        return ()
    head = f"the replay of the unchanged job is {off:+.1%} off the measured step"
    if abs(off) > HOPELESS:
        head += ", so that no answer from it can be trusted"
    why, place = _explain(timeline, measured, off)
    return (Doubt("replay-off", f"{head}: {why}", place),)


def _explain(timeline: Timeline, measured: Measured, off: float) -> tuple[str, str]:
    """Return why the replay is *off* by that share, and the place."""
    graph = timeline.graph
    if noise := _find_noise(graph, measured, off):
        return f"{noise}: record again on a quiet machine", ""
    recorded = graph.measured_step_ns / measured.step_ns - 1
    if measured.source == "unprofiled" and recorded * off > 0 and abs(recorded) > abs(off) / 2:
        return _explain_profiler(recorded), ""
    parting = find_parting(timeline)
    if parting is None or parting.is_seam or parting.is_recorded != (off < 0):
        return f"the recorded window does not repeat as measured; {_say_steps(graph)}", ""
    said = f"{_describe(graph, parting)}; {_say_evidence(graph, parting)}"
    return said, _say_place(graph, parting)


def _find_noise(graph: Graph, measured: Measured, off: float) -> str:
    """Return what of the machine explains that the replay is *off* by that share; "" if nothing.

    Steps that vary are none where the recorded ones are compared with their own replay.
    """
    share = drift(measured.samples_ns) if measured.source == "unprofiled" else 0.0
    if share > DOUBTFUL:
        return f"the steps measured without the profiler drift by {share:.1%}"
    busy = max(disturbances(graph.meta.warnings).values(), default=0)
    if busy > 100 * DOUBTFUL:
        return f"other processes had {busy} % of the machine"
    varied = _measure_variation(measured) if measured.source == "unprofiled" else 0.0
    return f"the steps vary by {varied:.0%} themselves" if varied >= abs(off) else ""


def _measure_variation(measured: Measured) -> float:
    samples = np.asarray(measured.samples_ns, np.float64)
    return float(samples.std() / samples.mean())


def _explain_profiler(recorded: float) -> str:
    """Say that the steps under the profiler differ from those without it, by a share."""
    if recorded < 0:
        return (
            f"the recorded steps are {-recorded:.0%} shorter than those measured without the "
            "profiler, which can only be noise: record again on a quiet machine"
        )
    return (
        f"the recorded steps are {recorded:.0%} longer than those measured without the profiler, "
        "more than its cost per event explains: record without shapes, stacks and memory"
    )


def _describe(graph: Graph, parting: Parting) -> str:
    """Say what happens at the place where recording and replay part, and how much it takes."""
    tasks = graph.tasks
    name, on_device = _name(graph, parting.task), tasks["kind"].iat[parting.task] in DEVICE_KINDS
    each, step = (f"{ns / 1e6:,.3f} ms" for ns in (parting.largest_ns, parting.step_ns))
    if parting.is_recorded and on_device:
        what = (
            f"the device is idle for {each} before {name}, and nothing recorded tells why, as "
            "where another process has it"
        )
    elif parting.is_recorded:
        what = f"{name} takes {each} longer than all that it is known to wait for"
    elif parting.cause < 0:
        what = f"{name} takes {each} longer in the replay than it took"
    else:
        rule = f", {parting.rule}" if parting.rule else ""
        what = (
            f"in the replay {name} waits {each} longer for {_name(graph, parting.cause)} "
            f"({parting.why}{rule}) than it did"
        )
    return f"{what}; {step} of a step at such places"


def _say_place(graph: Graph, parting: Parting) -> str:
    """Return step, lane and task of the largest difference."""
    tasks, name = graph.tasks, _name(graph, parting.task)
    lane = lane_names(graph)[tasks["lane"].iat[parting.task]]
    one_rank = graph.lanes["rank"].nunique() == 1
    lane = lane.split(" ", 2)[2] if one_rank else lane
    before = "before " if tasks["kind"].iat[parting.task] in DEVICE_KINDS else ""
    return f"step {tasks['step'].iat[parting.task]} of the window, {lane}, {before}{name}"


def _name(graph: Graph, task: int) -> str:
    return short(str(graph.tasks["name"].iat[task]), NAME_WIDTH)


def _say_steps(graph: Graph) -> str:
    """Return what to do about steps that are none, or too few."""
    if {doubt.code for doubt in graph.state.doubts} & {"no-steps", "steps-guessed"}:
        return "nothing says where a step begins: give --step"
    return f"{graph.steps} of the steps do not show a steady pace: record more"


def _say_evidence(graph: Graph, parting: Parting) -> str:
    """Return what is missing in the recording, and what to record or pass instead."""
    return "; ".join(_list_missing(graph)) or (UNRECORDED if parting.is_recorded else UNTRUE)


def _list_missing(graph: Graph) -> Iterator[str]:
    meta, edges = graph.meta, graph.edges
    world, known = meta.world_size or 1, len(meta.ranks)
    if world > known >= 1:
        yield f"{known} of {world} ranks are recorded: load the others with it"
    streams = int((graph.lanes["kind"] == "stream").sum())
    is_recorded = (edges["rule"].astype(str) == "recorded").any()
    if streams > 1 and not is_recorded:
        yield (
            "no events between streams are recorded: record with CUDA synchronisation events "
            "(enable_cuda_sync_events of torch.profiler)"
        )
    lost = meta.warnings.get("launch_without_kernel", 0)
    if lost > DOUBTFUL * len(graph.tasks):
        yield (
            f"{lost} launches have no device task: synchronise before the profiler stops, "
            "or record fewer steps"
        )
    if graph.steps == 1:
        yield "only one step is in the window: record at least five"
