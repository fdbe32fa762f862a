"""The recorder: a schedule of warm-up, unprofiled and profiled blocks, driven one step at a time.

The user's loop (or `record`) calls `Recorder.step` after every iteration. Comes out: Kineto JSON
of the least disturbed profiled block, and the times of all blocks, profiled and not, interleaved.
"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from foretrace.errors import RecordError
from foretrace.tracer.recording.live_bytes import count_live_bytes
from foretrace.tracer.recording.module_ranges import annotate_modules
from foretrace.tracer.recording.optimizer_timer import Updates
from foretrace.tracer.recording.profiler_window import ProfilerWindow, step_range
from foretrace.tracer.recording.shapes import add_shapes
from foretrace.tracer.step_stats import Quality, trimmed_mean
from foretrace.util.import_target import first_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from foretrace.tracer.job import Job


@dataclass(frozen=True)
class Block:
    """Some consecutive steps run in one way.

    Kinds: "warm-up", "plain", "rehearsal", "profiled", and "shapes", which is profiled, too, but
    not timed.
    """

    kind: str
    steps: int


def schedule(*, steps: int = 5, warmup: int = 5, plain: int = 5, windows: int = 2) -> list[Block]:
    """Return the blocks of one recording.

    Unprofiled blocks stand before, between and after the profiled ones, so that a drift of the
    machine hits both alike. The rehearsal takes the profiler's own first-time costs; shapes are
    recorded last, since they disturb what follows (see `shapes`).

    >>> [f"{b.kind} {b.steps}" for b in schedule(steps=3, windows=1)]
    ['warm-up 5', 'plain 5', 'rehearsal 1', 'plain 5', 'profiled 3', 'plain 5', 'shapes 1']
    """
    profiled = [Block("profiled", steps), Block("plain", plain)]
    return [
        Block("warm-up", warmup),
        Block("plain", plain),
        Block("rehearsal", 1),
        Block("plain", plain),
        *profiled * windows,
        Block("shapes", 1),
    ]


def _nothing(_block: Block) -> None:
    """Do nothing between two blocks."""


@dataclass
class Recorder:
    """Records the job around it; use it as a context and call `step` after each iteration.

    ``between`` is called with each block that is over, before the next begins; it is not timed.
    With ``same_window`` the window kept is the middle one in time, as on every other rank of the
    job, instead of the one whose steps are nearest to those without the profiler.
    ``optimizer_ns`` is the optimizer's host time in each step of ``plain_ns``, where it has one;
    ``live_bytes`` what the job holds when its last recorded step is over.
    """

    job: Job
    blocks: list[Block]
    plain_ns: list[int] = field(default_factory=list)
    optimizer_ns: list[int] = field(default_factory=list)
    profiled_ns: list[int] = field(default_factory=list)
    quality: Quality = field(default_factory=Quality)
    unmatched: int = 0
    live_bytes: dict[str, int] | None = None
    between: Callable[[Block], None] = _nothing
    same_window: bool = False

    def __post_init__(self) -> None:
        """Start with nothing recorded."""
        self._waiting = list(self.blocks)
        self._windows: list[tuple[float, ProfilerWindow]] = []
        self._shapes: ProfilerWindow | None = None
        self._running, self._watch = ExitStack(), ExitStack()
        self._stamps: list[int] = []
        self._range: Any = None
        self._over: Callable[[int], None] = lambda _steps: None
        self._synchronize = _synchronizer(self.job)
        self._updates = Updates()

    @property
    def done(self) -> bool:
        """Whether the schedule is finished; further steps run as if there were no recorder."""
        return not self._waiting

    def __enter__(self) -> Self:
        """Begin the first block."""
        self._watch.enter_context(self._updates.watch())
        self._begin()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Stop what is still running; an unfinished block is dropped."""
        self._close_range()
        self._running.close()
        self._watch.close()

    def step(self) -> None:
        """Say that one iteration is over."""
        if self.done:
            return
        self._close_range()
        self._stamps.append(time.perf_counter_ns())
        if len(self._stamps) > self._waiting[0].steps:
            self._open_range()  # its start is the end of the last step
            self._close_range()
            self.between(self._finish())
            self._begin()
        else:
            self._open_range()

    def export(self, path: Path) -> None:
        """Write the profiled block that was disturbed least, or the middle one, with shapes.

        Raises
        ------
        RecordError
            No profiled block was finished.
        """
        if not self._windows:
            needed = sum(block.steps for block in self.blocks)
            raise RecordError(
                f"{self.job.name!r} ended before a profiled window was complete: "
                f"run at least {needed} steps, or ask for fewer"
            )
        self._choose_window().export(path)
        if self._shapes is None:
            return
        shaped = path.with_suffix(".shapes")
        self._shapes.export(shaped)
        self.unmatched = add_shapes(path, shaped, self._shapes.flops())
        shaped.unlink()

    def _choose_window(self) -> ProfilerWindow:
        """Return the window that shows the steps best which were measured without a profiler."""
        windows = self._windows if self.same_window else sorted(self._windows, key=lambda w: w[0])
        middle = windows[(len(windows) - 1) // 2]
        if self.same_window or not self.plain_ns:
            return middle[1]
        usual = trimmed_mean(self.plain_ns)
        return min(windows, key=lambda window: abs(window[0] - usual))[1]

    def _begin(self) -> None:
        """Set the next block up; nothing of this is timed."""
        if self.done:
            return
        kind = self._waiting[0].kind
        self._synchronize()
        if kind in ("profiled", "rehearsal", "shapes"):
            self._running.enter_context(annotate_modules(self.job.model))
            window = ProfilerWindow(shapes=kind == "shapes")
            window.start()
            self._running.callback(window.stop)
            self._window = window
        elif kind == "plain":
            self._over = self.quality.block()
        self._stamps = [time.perf_counter_ns()]
        self._open_range()

    def _finish(self) -> Block:
        """Take the times of the block that just ended, stop its profiler and return it."""
        block = self._waiting.pop(0)
        self._synchronize()
        ended = time.perf_counter_ns()
        times = _step_times(self._stamps, ended, self.job)
        if block.kind == "plain":
            self._over(block.steps)
            self.plain_ns += times
            self.optimizer_ns += self._updates.per_step(self._stamps)
        if block.kind == "shapes":
            self.live_bytes = count_live_bytes(self.job)
        self._running.close()
        if block.kind == "shapes":
            self._shapes = self._window
        if block.kind == "profiled":
            self.profiled_ns += times
            self._windows.append((sum(times) / len(times), self._window))
        return block

    def _open_range(self) -> None:
        if self._waiting[0].kind in ("profiled", "shapes"):
            self._range = step_range(len(self._stamps) - 1)

    def _close_range(self) -> None:
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None


def drive(run: Callable[[], None], recorder: Recorder) -> None:
    """Call *run*, one iteration, under an entered *recorder* until its schedule is finished.

    Raises
    ------
    RecordError
        A step failed; the text says which and why.
    """
    count = 0
    while not recorder.done:
        attempt(run, f"step {count} of {recorder.job.name!r}")
        recorder.step()
        count += 1


def attempt(run: Callable[[], None], what: str) -> None:
    """Call *run*, turning whatever the user's code raises into one line about *what*."""
    try:
        run()
    except RecordError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {first_line(error)}"
        raise RecordError(f"{what} failed: {text}") from error


def _step_times(stamps: list[int], ended: int, job: Job) -> list[int]:
    """Return the time of each step in ns; of a block on a GPU its mean.

    There the host runs ahead of the device: single host times say nothing about steps.
    """
    if job.uses_cuda:
        return [(ended - stamps[0]) // (len(stamps) - 1)]
    return [after - before for before, after in itertools.pairwise(stamps)]


def _synchronizer(job: Job) -> Callable[[], None]:
    """Return what waits for all work on the device: nothing to do on a CPU."""

    def synchronize() -> None:
        if job.uses_cuda:
            import torch

            torch.cuda.synchronize()

    return synchronize
