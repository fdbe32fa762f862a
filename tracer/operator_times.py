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
from torch.utils._pytree import tree_map

from foretrace.tracer.operator_log import Operand
from foretrace.tracer.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from foretrace.tracer.operator_log import Call

RUNS = 7
LONG_NS = 15_000_000
"""An operator that takes longer is run less often, but at least `FEWEST` times."""
FEWEST = 2
FLUSH_BYTES = 8 << 20  # leaves the last-level cache warm, as a step does
ALIGNMENT = 64
MARK = "foretrace::call#"
Key = tuple[str, str]
"""Operator and arguments."""


@dataclass(frozen=True)
class Timing:
    """Time of one operator, in ns; what could not be found out is NaN.

    ``device_ns`` is the time of its kernels; ``spread`` half the interquartile range as a share.
    """

    ns: float = math.nan
    device_ns: float = math.nan
    spread: float = math.nan

    @property
    def is_known(self) -> bool:
        """Whether there is a time at all."""
        return not math.isnan(self.ns)


@dataclass
class _Bench:
    """One call to time and the times so far."""

    call: Call
    host_ns: list[int] = field(default_factory=list)
    device_ns: list[int] = field(default_factory=list)
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
        device_ns = median(self.device_ns) if any(self.device_ns) else math.nan
        return Timing(float(median(self.host_ns)), device_ns, spread(self.host_ns))


def spread(times: Sequence[int]) -> float:
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
        self._inputs = _Inputs(calls.values())
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
            window = Window(shapes=False)
            window.start()
            try:
                ran = self._turn(waiting, deadline)
            finally:
                window.stop()
            self._take(window, ran)
            if time.monotonic() > deadline:
                return

    def _turn(self, waiting: Sequence[_Bench], deadline: float) -> list[_Bench]:
        """Run each call once; return those that ran and count."""
        ran: list[_Bench] = []
        for bench in waiting:
            if time.monotonic() > deadline:
                break
            try:
                if not bench.is_warm:
                    self._once(bench.call)
                    bench.is_warm = True
                self._once(bench.call, mark=f"{MARK}{len(ran)}")
            except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError) as error:
                bench.why_not = (str(error).splitlines() or [type(error).__name__])[0]
                continue
            ran.append(bench)
        return ran

    def _once(self, call: Call, mark: str = "foretrace::warm") -> None:
        given, named = self._inputs.of(call)
        self._flush.add_(1)
        with torch.no_grad():
            _synchronize(self._device)
            with torch.profiler.record_function(mark):
                call.function(*given, **named)
            _synchronize(self._device)

    def _take(self, window: Window, ran: Sequence[_Bench]) -> None:
        """Read the times of the calls that *ran* out of the profiler's events."""
        events = window.events()
        kernels = _kernel_ns(events) if self._device != "cpu" else {}
        host = sorted((e for e in events if _is_host(e)), key=lambda e: e.start_ns())
        for number, event, inner in _marked(host):
            if number >= len(ran):
                continue  # a call that failed after its mark was set
            bench = ran[number]
            found = next((e for e in inner if e.name() == bench.call.operator), None)
            if found is None:
                bench.why_not = f"the profiler shows no {bench.call.operator}"
                continue
            bench.host_ns.append(found.duration_ns())
            bench.device_ns.append(sum(kernels.get(e.correlation_id(), 0) for e in (event, *inner)))


def _marked(events: Sequence[Any]) -> Iterator[tuple[int, Any, list[Any]]]:
    """Yield, per mark, its number, its event and the events inside."""
    number, mark, inner = -1, None, []
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
    found: dict[int, int] = defaultdict(int)
    for event in events:
        if not _is_host(event):
            found[event.linked_correlation_id()] += event.duration_ns()
    return found


def _synchronize(device: str) -> None:
    if device != "cpu":  # pragma: no cover - needs a GPU
        torch.cuda.synchronize()


def _flush_bytes(device: str) -> int:
    if device == "cpu":
        return FLUSH_BYTES
    cache = torch.cuda.get_device_properties(device).L2_cache_size  # pragma: no cover - needs a GPU
    return max(FLUSH_BYTES, 2 * cache)  # pragma: no cover - same


class _Inputs:
    """Makes tensors for calls: floats share one store of random values per type and device.

    What a call writes to is copied first, so that no run sees what the last one left.
    """

    def __init__(self, calls: Any) -> None:
        sizes: dict[tuple[torch.dtype, str], int] = defaultdict(int)
        for call in calls:
            needed: dict[tuple[torch.dtype, str], int] = defaultdict(int)
            for operand in call.operands:
                if operand.values is None:
                    needed[operand.dtype, operand.device] += _span(operand)
            for kind, size in needed.items():
                sizes[kind] = max(sizes[kind], size)
        self._stores = {kind: _random(size, *kind) for kind, size in sizes.items()}

    def of(self, call: Call) -> Any:
        """Return fresh arguments for *call*."""
        taken: dict[tuple[torch.dtype, str], int] = defaultdict(int)

        def made(operand: Any) -> Any:
            if not isinstance(operand, Operand):
                return operand
            if operand.values is not None:
                return _laid_out(operand)
            kind = operand.dtype, operand.device
            offset = taken[kind]
            taken[kind] += _span(operand)
            return torch.as_strided(self._stores[kind], operand.shape, operand.stride, offset)

        given, named = tree_map(made, call.arguments)
        written = _written(call)
        return (
            tuple(_copied(v) if place in written else v for place, v in enumerate(given)),
            {name: _copied(v) if name in written else v for name, v in named.items()},
        )


def _written(call: Call) -> set[int | str]:
    """Return places and names of the arguments that *call* writes to."""
    arguments = call.function._schema.arguments  # noqa: SLF001 - no public form
    found = [
        (place, argument.name)
        for place, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return {key for both in found for key in both}


def _copied(value: Any) -> Any:
    """Return *value* with every tensor in it copied, strides kept."""

    def copied(part: Any) -> Any:
        if not isinstance(part, torch.Tensor):
            return part
        return torch.empty_strided(
            part.shape, part.stride(), dtype=part.dtype, device=part.device
        ).copy_(part)

    return tree_map(copied, value)


def _span(operand: Operand) -> int:
    """Return how many elements of memory *operand* reaches over, aligned."""
    if 0 in operand.shape:
        return 0
    reach = sum((size - 1) * stride for size, stride in zip(operand.shape, operand.stride, strict=True))
    step = max(ALIGNMENT // operand.dtype.itemsize, 1)
    return -(-(1 + reach) // step) * step


def _random(size: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Return *size* values: floats from 0.1 to 1, booleans half of them true, whole numbers 0."""
    if dtype == torch.bool:
        return torch.rand(size, device=device) < 0.5  # noqa: PLR2004 - half of them
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.zeros(size, dtype=dtype, device=device)
    return (0.1 + 0.9 * torch.rand(size, device=device)).to(dtype)


def _laid_out(operand: Operand) -> torch.Tensor:
    """Return the recorded values, repeated or cut to the operand's shape, with its strides."""
    assert operand.values is not None
    values = operand.values.to(operand.dtype)
    if tuple(values.shape) != operand.shape:
        values = _resized(values.flatten(), math.prod(operand.shape)).reshape(operand.shape)
    stored = values[tuple(slice(0, 1 if step == 0 else None) for step in operand.stride)]
    laid = torch.empty_strided(
        stored.shape, operand.stride, dtype=operand.dtype, device=operand.device
    )
    return laid.copy_(stored).expand(operand.shape)


def _resized(values: torch.Tensor, size: int) -> torch.Tensor:
    if not values.numel():
        return torch.zeros(size, dtype=values.dtype, device=values.device)
    return values.repeat(-(-size // values.numel()))[:size]
