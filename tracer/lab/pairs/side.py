"""One side of a pair: a job, how to run a step of it, and the times so far."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foretrace.tracer.job import Job, runner
from foretrace.tracer.recording.recorder import Block, Recorder, attempt, drive
from foretrace.tracer.step_stats import SETTLE_PER_WORKER, Quality, trimmed_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from foretrace.tracer.lab.zoo.variants import Variant


@dataclass
class Side:
    """One side of a pair: its job, how to run a step, and the times so far."""

    variant: Variant
    job: Job
    run: Callable[[], None]
    block: int = 1
    step_ns: list[int] = field(default_factory=list)
    quality: Quality = field(default_factory=Quality)

    @contextmanager
    def running(self) -> Iterator[Callable[[], None]]:
        """Give what runs a step; loader workers exist, their queue filled, while this is open.

        Workers that went on in the background would disturb the other side, and would give this
        one batches that it has not paid for.
        """
        if not self.variant.workers:
            yield self.run
            return
        run = runner(self.job)
        for _ in range(SETTLE_PER_WORKER * self.variant.workers):
            attempt(run, f"a step of {self.job.name!r}")
        yield run

    def measure(self) -> float:
        """Time one more block of unprofiled steps and return their mean in ns."""
        blocks = [Block("warm-up", 1), Block("plain", self.block)]
        recorder = Recorder(self.job, blocks, quality=self.quality)
        with self.running() as run, recorder:
            drive(run, recorder)
        self.step_ns += recorder.plain_ns
        return trimmed_mean(recorder.plain_ns)
