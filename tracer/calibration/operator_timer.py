"""Time operators one by one, with nothing of the job around them.

Goes in: calls as `operator_log` noted them. Comes out: the time of the operator's own profiler
event, children included, so that the cost of calling it from Python never enters. All calls take
turns, so that a drift of the machine hits old and new forms alike; between two of them the caches
are emptied.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import torch

from foretrace.tracer.calibration.file import Timing
from foretrace.tracer.calibration.inputs import Inputs
from foretrace.tracer.recording.profiler_window import ProfilerWindow
from foretrace.tracer.timing import subtract_absence, watch_core
from foretrace.util.import_target import first_line
from foretrace.util.progress import stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from foretrace.tracer.calibration.operator_call import Call, Key

RUNS = 7
LONG_NS = 15_000_000
"""An operator that takes longer is run less often, but at least `FEWEST` times."""
FEWEST = 3
FLUSH_BYTES = 8 << 20  # leaves the last-level cache warm, as a step does
MARK = "foretrace::call#"


@dataclass
class _Bench:
    """One call to time and the times so far."""

    call: Call
    host_ns: list[int] = field(default_factory=list)
    device_ns: list[int] = field(default_factory=list)
    away_ns: int = 0
    is_warm: bool = False
    why_not: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it was run often enough, or cannot be run."""
        if self.why_not or not self.host_ns:
            return bool(self.why_not)
        enough = max(FEWEST, min(RUNS, round(RUNS * LONG_NS / max(self.host_ns[0], 1))))
        return len(self.host_ns) >= enough

    @property
    def timing(self) -> Timing:
        if not self.host_ns:
            return Timing()
        device_ns = low_quartile(self.device_ns) if any(self.device_ns) else math.nan
        return Timing(low_quartile(self.host_ns), device_ns, spread(self.host_ns))


def low_quartile(times: Sequence[float]) -> float:
    """Return the low quartile of *times*: with few runs, others only ever add time.

    >>> low_quartile([10, 11, 12, 13, 90])
    11.0
    """
    return float(quantiles(times, n=4, method="inclusive")[0]) if len(times) > 1 else times[0]


def spread(times: Sequence[int]) -> float:
    """Return half the interquartile range of *times* as a share of their median."""
    if len(times) < 2:  # noqa: PLR2004 - one value has no spread
        return math.nan
    low, _, high = quantiles(times, n=4, method="inclusive")
    return (high - low) / 2 / max(median(times), 1)


class Stopwatch:
    """Times calls, biggest first, until `run` has spent its seconds; `timings` has the rest.

    An interrupt in the middle loses nothing that was timed.
    """

    def __init__(self, calls: Mapping[Key, Call]) -> None:
        """Prepare to time *calls*, in the order given while time is short."""
        self._benches = {key: _Bench(call) for key, call in calls.items()}
        devices = {operand.device for call in calls.values() for operand in call.operands}
        self._device = next((d for d in sorted(devices) if d.startswith("cuda")), "cpu")
        self._inputs = Inputs(calls.values())
        self._flush = torch.ones(_flush_bytes(self._device) // 4, device=self._device)

    @property
    def timings(self) -> dict[Key, Timing]:
        """What is known now."""
        return {key: bench.timing for key, bench in self._benches.items()}

    @property
    def failures(self) -> dict[Key, str]:
        """Calls that cannot be run alone, and why."""
        return {key: bench.why_not for key, bench in self._benches.items() if bench.why_not}

    def run(self, seconds: float) -> None:
        """Give every call its turn until all have enough runs or *seconds* are over."""
        deadline = time.monotonic() + seconds
        while waiting := [b for b in self._benches.values() if not b.is_done]:
            done = len(self._benches) - len(waiting)
            window, ran = ProfilerWindow(shapes=False), list[_Bench]()
            with stage(f"timing operators, {done} of {len(self._benches)} done"):
                window.start()
                try:
                    self._turn(waiting, deadline, ran)
                finally:
                    window.stop()
                    self._take(window, ran)
            if time.monotonic() > deadline:
                return

    def _turn(self, waiting: Sequence[_Bench], deadline: float, ran: list[_Bench]) -> None:
        """Run each call once; put each that is tried into *ran*."""
        for bench in waiting:
            if time.monotonic() > deadline:
                return
            ran.append(bench)
            try:
                if not bench.is_warm:
                    self._once(bench.call)
                    bench.is_warm = True
                bench.away_ns = self._once(bench.call, mark=f"{MARK}{len(ran) - 1}")
            except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError) as error:
                bench.why_not = first_line(error).split(". ")[0] or type(error).__name__

    def _once(self, call: Call, mark: str = "foretrace::warm") -> int:
        """Run *call* from cold caches; return how long others had the core meanwhile, in ns."""
        given, named = self._inputs.of(call)
        self._flush.add_(1)
        with torch.set_grad_enabled(call.phase == "forward"):  # as in the job
            _synchronize(self._device)
            away_ns = watch_core()
            with torch.profiler.record_function(mark):
                call.function(*given, **named)
            away = away_ns()
            _synchronize(self._device)
        return away

    def _take(self, window: ProfilerWindow, ran: Sequence[_Bench]) -> None:
        """Read the times of the calls that *ran* out of the profiler's events."""
        events = window.events()
        kernels = _kernel_ns(events) if self._device != "cpu" else {}
        host = sorted((e for e in events if _is_host(e)), key=lambda e: e.start_ns())
        for number, event, inner in _split_at_marks(host):
            bench = ran[number]
            if bench.why_not:
                continue
            operator = next((e for e in inner if e.name() == bench.call.operator), None)
            if operator is None:
                bench.why_not = f"the profiler shows no {bench.call.operator}"
                continue
            length = operator.duration_ns()
            bench.host_ns.append(subtract_absence(bench.away_ns, length))
            bench.device_ns.append(sum(kernels.get(e.correlation_id(), 0) for e in (event, *inner)))


def _split_at_marks(events: Sequence[Any]) -> Iterator[tuple[int, Any, list[Any]]]:
    """Yield, per mark, its number, its event and the events inside."""
    number, mark = -1, None
    inner: list[Any] = []
    for event in events:
        if event.name().startswith(MARK):
            if mark is not None:
                yield number, mark, inner
            number, mark, inner = int(event.name().removeprefix(MARK)), event, []
        elif mark is not None and event.start_ns() < mark.start_ns() + mark.duration_ns():
            inner.append(event)
    if mark is not None:
        yield number, mark, inner


def _is_host(event: Any) -> bool:
    return event.device_type() == torch.autograd.DeviceType.CPU


def _kernel_ns(events: Sequence[Any]) -> dict[int, int]:  # pragma: no cover - needs a GPU
    """Return the time of the kernels of each operator, by the operator's correlation id."""
    kernel_ns: dict[int, int] = defaultdict(int)
    for event in events:
        if not _is_host(event):
            kernel_ns[event.linked_correlation_id()] += event.duration_ns()
    return kernel_ns


def _synchronize(device: str) -> None:
    if device != "cpu":  # pragma: no cover - needs a GPU
        torch.cuda.synchronize()


def _flush_bytes(device: str) -> int:
    if device == "cpu":
        return FLUSH_BYTES
    cache = torch.cuda.get_device_properties(device).L2_cache_size  # pragma: no cover - needs a GPU
    return max(FLUSH_BYTES, 2 * cache)  # pragma: no cover - same
