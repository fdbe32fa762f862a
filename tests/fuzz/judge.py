"""A file in; what became of it out: an answer that can be, or one sentence of the project's own."""

from __future__ import annotations

import math
import resource
import signal
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import foretrace.batch.report  # noqa: F401  # registers the forms of results
from foretrace.analysis.scenario_sweep import predict_each
from foretrace.analysis.summary import summarise
from foretrace.analysis.unchanged.baseline import replay_baseline
from foretrace.batch.compare import judge as judge_rows
from foretrace.batch.config import read_study
from foretrace.batch.items import list_items, list_pairs
from foretrace.batch.rows import read_rows
from foretrace.batch.worker import evaluate
from foretrace.errors import ForetraceError
from foretrace.graph.build import build
from foretrace.job.convergence.loss_log import read_losses
from foretrace.job.runtime.samples import read_samples
from foretrace.report.forms import as_json, as_text
from foretrace.tracer.readers.load import load, save
from foretrace.transforms.cluster.cost_tables import read_table
from foretrace.transforms.cluster.file import read_cluster
from foretrace.transforms.collectives.nccl_tests_log import read_log
from foretrace.transforms.measured.calibration import read_calibration
from foretrace.transforms.measured.job_identity import attach
from foretrace.transforms.scenario import load_scenario, parse_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from foretrace.analysis.prediction import Prediction

MOST_SECONDS = 20
MOST_BYTES = 2 << 30
FARTHEST = 1000.0
"""By how much a predicted or replayed step may differ from the recorded one."""
QUESTIONS = (
    "faster_host(speedup=2)", "faster_kernels(pattern='gemm|relu|nccl', speedup=2)", "amp",
    "device(name='H100-SXM5')", "batch_size(n=64)", "fused_optimizer(kind='fused')",
    "ddp(workers=4)", "remove_sync", "dataloader(workers=4)", "network(bandwidth='10Gbps')",
)  # fmt: skip


class ViolationError(AssertionError):
    """Something that no file may bring about."""


def judge(kind: str, content: bytes) -> str:
    """Return "answered" or "refused".

    Raises
    ------
    ViolationError
        Another error came, an answer that cannot be, or too much time or memory.
    """
    with TemporaryDirectory(prefix="fuzz-") as name:
        path = Path(name) / f"file{_ending(kind)}"
        path.write_bytes(content)
        began = time.perf_counter()
        try:
            with _deadline():
                _READERS[kind.partition("-")[0]](path)
        except ForetraceError as error:
            _check_sentence(str(error))
            outcome = "refused"
        except ViolationError:
            raise
        except Exception as error:
            text = f"{kind}: {type(error).__name__}: {str(error)[:200]}"
            raise ViolationError(text) from error
        else:
            outcome = "answered"
    if (took := time.perf_counter() - began) > MOST_SECONDS:
        raise ViolationError(f"{kind}: took {took:.1f} s")
    if (used := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024) > MOST_BYTES:
        raise ViolationError(f"{kind}: took {used / 2**30:.1f} GiB")
    return outcome


def _ending(kind: str) -> str:
    return {"scenario": ".toml", "cluster": ".toml", "study": ".toml", "archive": ".tar"}.get(
        kind, ""
    )


@contextmanager
def _deadline() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise ViolationError(f"takes more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS + 1)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _check_sentence(text: str) -> None:
    if not text or "\n" in text or len(text) > 2000:
        raise ViolationError(f"no sentence: {text[:300]!r}")


def _trace(path: Path) -> None:
    trace = load(path)
    if hash(path.stat().st_size) % 4 == 0:
        trace = load(save(trace, path.with_name("again.parquet")))
    baseline = replay_baseline(build(trace))
    as_text(summary := summarise(trace), terminal=False)
    as_json(summary)
    number = path.stat().st_size % len(QUESTIONS)
    asked = [parse_scenario([QUESTIONS[(number + i) % len(QUESTIONS)]]) for i in range(2)]
    for outcome in predict_each(baseline, [(), *asked]):
        if isinstance(outcome, ForetraceError):
            _check_sentence(str(outcome))
        else:
            _check_prediction(outcome)


def _check_prediction(prediction: Prediction) -> None:
    step, after = prediction.measured.step_ns, prediction.predicted_ns
    low, high = prediction.interval_ns
    numbers = (step, after, low, high, prediction.replayed_before_ns)
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ViolationError(f"an answer that cannot be: {numbers}")
    if not (step > 0 and low <= high):
        raise ViolationError(f"an answer that cannot be: {numbers}")
    for number in (after, prediction.replayed_before_ns):
        if not step / FARTHEST <= number <= step * FARTHEST:
            raise ViolationError(f"{number / step:.3g} times the recorded step: {numbers}")
    as_text(prediction, terminal=False)
    as_json(prediction)


def _calibration(path: Path) -> None:
    attach(_graph(), read_calibration(path))


def _graph() -> Any:
    from tests.fuzz.seeds import seeds

    if not _GRAPHS:
        with TemporaryDirectory() as name:
            (Path(name) / "t.json").write_bytes(seeds()["trace-kineto"])
            _GRAPHS.append(build(load(Path(name) / "t.json")))
    return _GRAPHS[0]


_GRAPHS: list[Any] = []


def _results(path: Path) -> None:
    comparison = judge_rows(read_rows(path))
    as_text(comparison, terminal=False)


def _archive(path: Path) -> None:
    for item in list_pairs(path):
        (row,) = evaluate([item])
        if row.error is not None:
            _check_sentence(row.error)
            if row.error.split(":")[0].endswith("Error") and "internal" not in row.error:
                raise ViolationError(f"a row of another error: {row.error}")
            continue
        numbers = (row.before_ns, row.predicted_ns, row.low_ns, row.high_ns, row.after_ns)
        if not all(n is not None and math.isfinite(n) and n >= 0 for n in numbers):
            raise ViolationError(f"a row that cannot be: {numbers}")


def _study(path: Path) -> None:
    list_items(read_study(path), path.parent)


def _log(path: Path, read: Any = None) -> None:
    refused = 0
    for one in (read_losses, read_samples) if read is None else (read,):
        try:
            one(path)
        except ForetraceError as error:
            refused += 1
            last = error
    if refused == 2:
        raise last


_READERS: dict[str, Callable[[Path], object]] = {
    "trace": _trace,
    "calibration": _calibration,
    "results": _results,
    "costs": read_table,
    "archive": _archive,
    "scenario": load_scenario,
    "cluster": lambda path: read_cluster(str(path)),
    "study": _study,
    "log": _log,
    "nccl": partial(read_log, topology=""),
}
