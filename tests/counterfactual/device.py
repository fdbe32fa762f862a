"""The device of one process: streams that work in order, events, copy engines, meeting ranks.

Every command knows when it may start at the earliest; it is *settled* once its start and end are
known. Commands of a stream settle in order. Most settle as soon as they are given; a transfer waits
for its engine (`Engine`), a collective for the other ranks (`Meeting`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush


@dataclass(slots=True, eq=False)
class Command:
    """Something a stream does in its turn. ``start`` and ``end`` are -1 until they are known."""

    ready: int
    ns: int = 0
    start: int = -1
    end: int = -1

    def settle(self, stream: Stream) -> bool:
        """Find out start and end; tell whether they are known now."""
        self.start = start = stream.next_start(self.ready)
        stream.end = self.end = start + self.ns
        stream.worked = True
        return True


@dataclass(slots=True, eq=False)
class Task(Command):
    """A command that the profiler sees: a kernel, a transfer or a memset."""

    name: str = ""
    kind: str = "kernel"
    stream: int = 0
    correlation: int = 0
    external: int = 0
    step: int = 0
    size: int = 0


@dataclass(slots=True, eq=False)
class Idle(Command):
    """Time in which a stream does nothing."""

    def settle(self, stream: Stream) -> bool:
        """Let the stream stand still from where it is."""
        self.start = max(stream.end, stream.gate, self.ready)
        self.end = self.start + self.ns
        stream.worked_until(self.end)
        return True


@dataclass(slots=True, eq=False)
class Mark(Command):
    """One recording of an event: it happens when everything before it is done."""

    number: int = 0
    correlation: int = 0
    stream: int = 0
    exposes: bool = False
    waiting: list[Stream] = field(default_factory=list)

    def settle(self, stream: Stream) -> bool:
        """Happen, and wake the streams that wait for it."""
        self.start = self.end = max(stream.end, stream.gate, self.ready)
        self.exposes = stream.has_collectives
        for other in self.waiting:
            other.advance()
        return True


@dataclass(slots=True, eq=False)
class Gate(Command):
    """A stream waits for a mark."""

    mark: Mark | None = None
    lag: int = 0

    def settle(self, stream: Stream) -> bool:
        """Hold the stream back until the mark has happened."""
        mark = self.mark
        assert mark is not None
        if mark.end < 0:
            if stream not in mark.waiting:
                mark.waiting.append(stream)
            return False
        self.start = self.end = mark.end
        if mark.exposes:
            stream.exposed += max(0, mark.end - max(stream.end, stream.gate, self.ready))
        stream.gate = max(stream.gate, mark.end + self.lag)
        return True


@dataclass(slots=True, eq=False)
class EngineTask(Task):
    """A task of an engine, which takes one after the other, that first which could start first."""

    engine: Engine | None = None
    asked: bool = False

    def settle(self, stream: Stream) -> bool:
        """Ask the engine, and wait until it has come to this task."""
        assert self.engine is not None
        if not self.asked:
            self.asked = True
            self.engine.ask(stream.next_start(self.ready), self, stream)
        if self.end < 0:
            return False
        stream.worked_until(self.end)
        return True


@dataclass(slots=True, eq=False)
class Meeting:
    """A collective of all ranks: the transfer begins when the last one has come."""

    expected: int
    arrived: dict[int, int] = field(default_factory=dict)
    ns: int = 0
    streams: list[Stream] = field(default_factory=list)

    def arrive(self, rank: int, time: int, ns: int, stream: Stream) -> bool:
        """Come at *time*; tell whether all are there."""
        if rank not in self.arrived:
            self.arrived[rank] = time
            self.ns = max(self.ns, ns)
            self.streams.append(stream)
            if len(self.arrived) == self.expected:
                for other in self.streams:
                    if other is not stream:
                        other.advance()
        return len(self.arrived) == self.expected

    @property
    def end(self) -> int:
        """When it is over on all ranks."""
        return max(self.arrived.values()) + self.ns


@dataclass(slots=True, eq=False)
class CollectiveTask(Task):
    """The kernel of a collective: it runs from this rank's arrival to the end of the transfer."""

    meeting: Meeting | None = None
    rank: int = 0

    def settle(self, stream: Stream) -> bool:
        """Arrive, and end with all others."""
        assert self.meeting is not None
        stream.has_collectives = True
        if self.start < 0:
            self.start = stream.next_start(self.ready)
        if not self.meeting.arrive(self.rank, self.start, self.ns, stream):
            return False
        self.end = self.meeting.end
        stream.worked_until(self.end)
        return True


@dataclass(slots=True, eq=False)
class GraphRun(Command):
    """One launch of a graph: its kernels run as their dependencies and branches allow."""

    nodes: list[tuple[Task, int, tuple[int, ...]]] = field(default_factory=list)
    gap: int = 0

    def settle(self, stream: Stream) -> bool:
        """Place every kernel."""
        self.start = stream.next_start(self.ready)
        branch_end: dict[int, int] = {}
        for task, branch, after in self.nodes:
            needed = [self.nodes[number][0].end + self.gap for number in after]
            if branch in branch_end:
                needed.append(branch_end[branch] + self.gap)
            task.start = max(needed, default=self.start)
            task.end = branch_end[branch] = task.start + task.ns
        self.end = max(branch_end.values(), default=self.start)
        stream.worked_until(self.end)
        return True


@dataclass(slots=True, eq=False)
class Stream:
    """Commands in order. ``gate`` holds the next one back until an event of another stream."""

    gap: int
    end: int = 0
    gate: int = 0
    worked: bool = False
    has_collectives: bool = False
    exposed: int = 0
    pending: deque[Command] = field(default_factory=deque)
    launched: list[Command] = field(default_factory=list)

    def give(self, command: Command) -> None:
        """Append *command*."""
        if self.pending or not command.settle(self):
            self.pending.append(command)

    def advance(self) -> None:
        """Settle what can be settled."""
        while self.pending and self.pending[0].settle(self):
            self.pending.popleft()

    def next_start(self, ready: int) -> int:
        """Return when work that may start at *ready* does start."""
        free = self.end + self.gap if self.worked else 0
        return max(ready, free, self.gate)

    def worked_until(self, end: int) -> None:
        """Note that work ends at *end*."""
        self.end = end
        self.worked = True

    @property
    def all_done(self) -> int:
        """When everything given so far is done, or -1 where that is not yet known."""
        return -1 if self.pending else max(self.end, self.gate)


@dataclass(slots=True, eq=False)
class Engine:
    """A copy engine, or all SMs at once. It serves by the time from which a task could run."""

    gap: int
    free: int = 0
    asked: list[tuple[int, int, EngineTask, Stream]] = field(default_factory=list)
    count: int = 0

    def ask(self, time: int, task: EngineTask, stream: Stream) -> None:
        """Queue *task*, which could start at *time*."""
        self.count += 1
        heappush(self.asked, (time, self.count, task, stream))

    def serve(self) -> None:
        """Run the task that could start first."""
        time, _, task, stream = heappop(self.asked)
        task.start = max(time, self.free)
        task.end = task.start + task.ns
        self.free = task.end + self.gap
        stream.advance()
