"""The threads of one process: they carry out a program's operations, one after the other.

The autograd thread runs only while the main thread waits for it, so that both share one clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.counterfactual.program import (
    Backward,
    Collective,
    Copy,
    DeviceIdle,
    GraphLaunch,
    HostWork,
    Launch,
    Memset,
    NextBatch,
    Program,
    Range,
    RecordEvent,
    SyncDevice,
    SyncEvent,
    SyncStream,
    WaitEvent,
)
from tests.counterfactual.runtime import AUTOGRAD, MAIN, Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.counterfactual.device import Meeting
    from tests.counterfactual.times import Times


class Span(NamedTuple):
    """A range that the profiler records."""

    name: str
    category: str
    thread: int
    start: int
    end: int
    external: int
    sequence: int
    step: int


class Host(Runtime):
    """The threads and the loader of one rank."""

    def __init__(
        self, program: Program, rank: int, times: Times, meetings: dict[tuple[int, int], Meeting]
    ) -> None:
        super().__init__(program, rank, times, meetings)
        self.requested: list[int] = []
        self.loaded: list[int] = []
        self.spans: list[Span] = []
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.step_waits: list[dict[str, int]] = []

    def run(self, steps: int, recorded: range) -> Iterator[None]:
        """Carry out *steps* steps; yield where the next operation cannot be carried out yet."""
        everything = list(self._flat(self.program.step))
        bare = [each for each in everything if not isinstance(each[1], Range)]
        for self.number in range(steps):
            self.recorded = self.number in recorded
            self.host = self.times.host[self.number]
            self.device = self.times.device[self.number]
            self.begins.append(self.now)
            self.step_waits.append(dict(self.waited))
            for carry_out, operation in everything if self.recorded else bare:
                if carry_out is None:  # by far the most frequent one
                    self.now += self.host[operation.key]
                    continue
                while carry_out(operation):
                    yield
            self.ends.append(self.now)
            self.now += self.host[0]

    def _flat(
        self, step: tuple[Any, ...]
    ) -> Iterator[tuple[Callable[[Any], bool | None] | None, Any]]:
        """Yield who carries out what, ranges as their begin and end; nobody, work of the host."""
        for operation in step:
            if isinstance(operation, Range):
                yield self._enter, operation
                yield from self._flat(operation.body)
                yield self._leave, operation
            elif isinstance(operation, Backward):
                yield self._fork, operation
                yield from self._flat(operation.body)
                yield self._join, operation
            elif isinstance(operation, HostWork):
                yield None, operation
            else:
                yield getattr(self, _CARRIED_OUT_BY[type(operation)]), operation

    def _enter(self, _: Range) -> None:
        self.external += 1
        self.open.append((self.now, self.external))

    def _leave(self, span: Range) -> None:
        start, external = self.open.pop()
        self.spans.append(
            Span(
                *(span.name, span.category, self.thread, start, self.now),
                *(external, span.sequence, self.number),
            )
        )

    def _fork(self, backward: Backward) -> None:
        self.now += self.host[backward.key]
        self.thread = AUTOGRAD

    def _join(self, _: Backward) -> None:
        self.thread = MAIN
        self.now += self.machine.join_ns

    def _next_batch(self, batch: NextBatch) -> None:
        """Take over batch n from worker n mod W, which got its request W x prefetch batches ago."""
        loader = self.program.loader
        assert loader is not None
        start, number = self.now, len(self.loaded)
        ns = self.device[0]
        if not loader.workers:
            self.now += ns
            self.loaded.append(self.now)
        else:
            ahead = number - loader.workers * loader.prefetch
            asked = self.requested[ahead] if ahead >= 0 else 0
            idle = self.loaded[number - loader.workers] if number >= loader.workers else 0
            self.loaded.append(max(asked, idle) + ns)
            self.now = max(self.now, self.loaded[number])
            self.now += self.host[batch.key]
        self.waited["loader"] += self.now - start
        self.requested.append(self.now)
        self.external += 1
        kind = "MultiProcessing" if loader.workers else "SingleProcess"
        name = f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__"
        self.spans.append(
            Span(
                *(name, "user_annotation", self.thread, start, self.now),
                *(self.external, -1, self.number),
            )
        )


_CARRIED_OUT_BY: dict[type, str] = {
    Launch: "launch",
    Memset: "memset",
    Collective: "collective",
    Copy: "copy",
    GraphLaunch: "graph",
    DeviceIdle: "idle",
    RecordEvent: "record",
    WaitEvent: "wait",
    SyncEvent: "sync_event",
    SyncStream: "sync_stream",
    SyncDevice: "sync_device",
    NextBatch: "_next_batch",
}
