"""What `job resources` needs to know of a job and a machine: from its file, else a recording.

Also the replay's answers beside the closed form's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from foretrace.errors import RefusedError, TransformError
from foretrace.predict import measured_step, predict
from foretrace.replay.job_resource_grid import Job, Machine
from foretrace.replay.job_resources import Storage, pace
from foretrace.transforms import parse_scenario
from foretrace.transforms.columns import is_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.graph.model import Graph
    from foretrace.replay.job_resources_file import Resources


class Replayed(NamedTuple):
    """A step in ms with so many workers and everything cached, by both ways."""

    workers: int
    form_ms: float
    replay_ms: float | None


def job_of(given: Resources, graph: Graph | None) -> Job:
    """Return the job: what the file says, and from the recording what it leaves out.

    Raises
    ------
    RefusedError
        Neither says a value.
    """
    known = {} if graph is None else _recorded(graph)
    job = given.job
    return Job(
        compute=_seconds(_stated("compute_ms", job.compute_ms, known)),
        prepare=_seconds(_stated("prepare_ms", job.prepare_ms, known)),
        hand_over=job.hand_over_ms / 1e3,
        threads=known.get("threads", 1.0) if job.threads is None else job.threads,
        batch_size=_stated("batch_size", job.batch_size, known),
        samples=job.samples,
        dataset_gb=job.dataset_gb,
        measured={(m.cores, m.workers): m.step_ms / 1e3 for m in given.measured},
    )


def _recorded(graph: Graph) -> dict[str, Any]:
    """Return what a recording says about the parts of a step; times in ms."""
    meta = graph.meta
    loader, machine = meta.loader or {}, meta.machine or {}
    found = {"batch_size": meta.batch_size, "threads": machine.get("threads")}
    if loader.get("load_ns"):
        found["prepare_ms"] = loader["load_ns"] * (loader.get("cpu_share") or 1.0) / 1e6
        loading = 0.0 if loader.get("workers") else _own_loading_ns(graph)
        found["compute_ms"] = (measured_step(graph).step_ns - loading) / 1e6
    return {name: value for name, value in found.items() if value}


def _own_loading_ns(graph: Graph) -> float:
    """Return what the training process itself spends on loading, per step."""
    tasks = graph.tasks
    own = is_in(tasks["phase"], "load") & is_in(tasks["kind"], "host")
    return float(tasks["work_ns"].to_numpy()[own].sum()) / graph.steps


def _stated(name: str, given: Any, known: dict[str, Any]) -> Any:
    found = known.get(name) if given is None else given
    if found is None:
        raise RefusedError(
            f"[job] {name} is not known; give it, or a recording of the job with its loader"
        )
    return found


def _seconds(times_ms: float | list[float]) -> tuple[float, ...]:
    times = times_ms if isinstance(times_ms, list) else [times_ms]
    return tuple(ms / 1e3 for ms in times)


def machine_of(given: Resources, graph: Graph | None, *, probe: bool) -> Machine:
    """Return the machine; where *probe*, its effective cores are measured here and now.

    Raises
    ------
    RefusedError
        There are more effective cores than cores.
    """
    machine = given.machine
    recorded = ((None if graph is None else graph.meta.machine) or {}).get("cores")
    cores = machine.cores or recorded or max(given.grid.cores)
    effective = machine.effective_cores or float(cores)
    if probe:
        from foretrace.tracer.effective_cores import effective_cores

        effective = effective_cores(cores)
    if effective > cores and not probe:
        raise RefusedError(f"[machine] effective_cores = {effective:g} of {cores} cores")
    disk = machine.disk_mbps * 1e6
    reader = disk if machine.stream_mbps is None else machine.stream_mbps * 1e6
    return Machine(int(cores), effective, Storage(disk, reader), machine.memory_gbps)


def replayed(graph: Graph, job: Job, workers: Iterable[int]) -> list[Replayed]:
    """Return the step with everything cached by the closed form and by the replay.

    The replay is that of the recorded machine after ``dataloader(workers=...)``.
    """
    cores = float((graph.meta.machine or {}).get("cores") or 1)
    means = job.step(sum(job.compute) / len(job.compute), sum(job.prepare) / len(job.prepare))
    found = []
    for count in sorted(workers):
        form = pace(means, Storage(1.0, 1.0), workers=count, hits=1.0, cores=cores)
        found.append(Replayed(count, form.seconds * 1e3, _replayed_ms(graph, count)))
    return found


def _replayed_ms(graph: Graph, workers: int) -> float | None:
    scenario = parse_scenario([f"dataloader(workers={workers})"])
    try:
        return predict(graph, scenario).predicted_ns / 1e6
    except TransformError:
        return None
