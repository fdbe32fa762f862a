"""What `job resources` needs to know of a job and a machine: from its file, else a recording.

Also the replay's answers beside the closed form's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretrace.analysis.prediction import Prediction
from foretrace.analysis.scenario_sweep import predict_each
from foretrace.analysis.unchanged.measured_step import measured_step
from foretrace.errors import RefusedError
from foretrace.job.resources.grid import LoadingJob, LoadingMachine
from foretrace.job.resources.throughput import Storage, pace
from foretrace.tracer.recording.effective_cores import effective_cores
from foretrace.transforms.edit.columns import is_in
from foretrace.transforms.edit.select import has_device
from foretrace.transforms.host.dataloader import HANDOVER_CPU_NS, HANDOVER_NS
from foretrace.transforms.scenario import as_scenario

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.analysis.scenario_sweep import Outcome
    from foretrace.analysis.unchanged.baseline import Baseline
    from foretrace.analysis.unchanged.measured_step import Measured
    from foretrace.graph.model import Graph
    from foretrace.job.resources.file import Resources


class LoaderComparison(NamedTuple):
    """A step in ms with so many workers, by the closed form and by the replay.

    ``replay_ms`` is None where the what-if does not apply or its answer is doubted.
    """

    workers: int
    form_ms: float
    replay_ms: float | None


def job_of(given: Resources, graph: Graph | None) -> LoadingJob:
    """Return the job: what the file says, and from the recording what it leaves out.

    Raises
    ------
    RefusedError
        Neither says a value.
    """
    recorded = {} if graph is None else _read_recording(graph)
    job = given.job
    return LoadingJob(
        compute=_seconds(_require("compute_ms", job.compute_ms, recorded)),
        prepare=_seconds(_require("prepare_ms", job.prepare_ms, recorded)),
        hand_over=_require("hand_over_ms", job.hand_over_ms, {"hand_over_ms": 0.0} | recorded)
        / 1e3,
        threads=recorded.get("threads", 1.0) if job.threads is None else job.threads,
        batch_size=_require("batch_size", job.batch_size, recorded),
        samples=job.samples,
        dataset_gb=job.dataset_gb,
        measured={(m.cores, m.workers): m.step_ms / 1e3 for m in given.measured},
    )


def _read_recording(graph: Graph) -> dict[str, Any]:
    """Return what a recording says about the parts of a step; times in ms."""
    meta = graph.meta
    loader, machine = meta.loader or {}, meta.machine or {}
    hand_over = HANDOVER_NS if has_device(graph) else HANDOVER_CPU_NS
    facts = {
        "batch_size": meta.batch_size,
        "threads": machine.get("threads"),
        "hand_over_ms": hand_over / 1e6,
    }
    if loader.get("load_ns"):
        facts["prepare_ms"] = loader["load_ns"] * _busy(loader) / 1e6
        loading = 0.0 if loader.get("workers") else _own_loading_ns(graph)
        facts["compute_ms"] = _subtract_loading(measured_step(graph), loading)
    return {name: value for name, value in facts.items() if value}


def _subtract_loading(measured: Measured, loading_ns: float) -> list[float]:
    """Return the recorded steps in ms less *loading_ns*; their mean is that of the measurement."""
    rest = max(measured.step_ns - loading_ns, 1.0)
    samples = np.asarray(measured.samples_ns, float)
    return (rest * samples / samples.mean() / 1e6).tolist()


def _busy(loader: dict[str, Any]) -> float:
    """Return the share of loading a batch in which the processor works."""
    return 1.0 if loader.get("cpu_share") is None else float(loader["cpu_share"])


def _own_loading_ns(graph: Graph) -> float:
    """Return what the training process itself spends on loading, per step."""
    tasks = graph.tasks
    own = is_in(tasks["phase"], "load") & is_in(tasks["kind"], "host")
    return float(tasks["work_ns"].to_numpy()[own].sum()) / graph.steps


def _require(name: str, given: Any, recorded: dict[str, Any]) -> Any:
    value = recorded.get(name) if given is None else given
    if value is None:
        raise RefusedError(
            f"[job] {name} is not known; give it, or a recording of the job with its loader"
        )
    return value


def _seconds(times_ms: float | list[float]) -> tuple[float, ...]:
    times = times_ms if isinstance(times_ms, list) else [times_ms]
    return tuple(ms / 1e3 for ms in times)


def machine_of(given: Resources, graph: Graph | None, *, probe: bool) -> LoadingMachine:
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
        effective = effective_cores(cores)
    if effective > cores and not probe:
        raise RefusedError(f"[machine] effective_cores = {effective:g} of {cores} cores")
    disk = machine.disk_mbps * 1e6
    reader = disk if machine.stream_mbps is None else machine.stream_mbps * 1e6
    return LoadingMachine(int(cores), effective, Storage(disk, reader), machine.memory_gbps)


def compare_loaders(
    baseline: Baseline, job: LoadingJob, workers: Iterable[int]
) -> list[LoaderComparison]:
    """Return the step with so many workers that load as recorded, by both ways.

    The recorded waiting of a load keeps a worker from its next one, and nobody else. The replay
    is that of the recorded machine after ``dataloader(workers=...)``.
    """
    meta, counts = baseline.graph.meta, sorted(workers)
    loader, machine = meta.loader or {}, meta.machine or {}
    waiting = (loader.get("load_ns") or 0.0) / 1e9 * (1 - _busy(loader))
    means = job.step(sum(job.compute) / len(job.compute), sum(job.prepare) / len(job.prepare))
    reader = means.batch_bytes / waiting if waiting else math.inf
    cores = float(machine.get("cores") or 1)
    storage = Storage(math.inf, reader)
    forms = [pace(means, storage, workers=count, hits=0.0, cores=cores) for count in counts]
    scenarios = [as_scenario(f"dataloader(workers={count})") for count in counts]
    return [
        LoaderComparison(count, form.seconds * 1e3, _predicted_ms(outcome, baseline))
        for count, form, outcome in zip(
            counts, forms, predict_each(baseline, scenarios), strict=True
        )
    ]


def _predicted_ms(outcome: Outcome, baseline: Baseline) -> float | None:
    """Return a prediction that is no more doubted than the recording itself."""
    if not isinstance(outcome, Prediction) or set(outcome.doubts) - set(baseline.doubts):
        return None
    return outcome.predicted_ns / 1e6
