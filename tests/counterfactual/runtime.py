"""The CUDA runtime as one process sees it: what its calls cost, wait for, and give the device.

A call that needs something not known yet (when a copy ends, when another rank comes) says so by
returning true, and is made again later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.counterfactual.device import (
    CollectiveTask,
    Engine,
    EngineTask,
    Gate,
    GraphRun,
    Idle,
    Mark,
    Meeting,
    Stream,
    Task,
)
from tests.counterfactual.program import streams_of_filling_kernels

if TYPE_CHECKING:
    from tests.counterfactual.program import (
        Collective,
        Copy,
        DeviceIdle,
        GraphLaunch,
        Launch,
        Memset,
        Program,
        RecordEvent,
        SyncDevice,
        SyncEvent,
        SyncStream,
        WaitEvent,
    )
    from tests.counterfactual.times import Times

MAIN, AUTOGRAD = 0, 1
"""Numbers of the threads."""
GRAPH_STREAM = 71
"""Stream of the first branch of a graph that is not the launching one."""


class Call(NamedTuple):
    """One call of the runtime. ``target`` tells what it waited for or concerned."""

    name: str
    thread: int
    start: int
    end: int
    correlation: int
    external: int
    step: int
    stream: int = -1
    mark: Mark | None = None


class Runtime:
    """The calls of one rank, and its device. ``now`` is the clock of the thread that runs."""

    def __init__(
        self, program: Program, rank: int, times: Times, meetings: dict[tuple[int, int], Meeting]
    ) -> None:
        self.program, self.rank, self.times, self.meetings = program, rank, times, meetings
        self.machine = program.machine
        self.now, self.thread, self.number = 0, MAIN, 0
        self.host, self.device = times.host[0], times.device[0]
        self.recorded = True
        self.correlation, self.external = 1_000, 0
        self.open: list[tuple[int, int]] = []
        self.streams: dict[int, Stream] = {}
        self.engines = {way: Engine(self.machine.gap_ns) for way in ("HtoD", "DtoH")}
        self.engines["SMs"] = Engine(0)
        self.shares_sms = len(streams_of_filling_kernels(program)) > 1
        self.marks: dict[int, Mark] = {}
        self.copying: EngineTask | None = None
        self.calls: list[Call] = []
        self.tasks: list[Task] = []
        self.waited = {"loader": 0, "sync": 0, "queue": 0}

    def launch(self, kernel: Launch) -> bool:
        """Launch a kernel."""
        new = EngineTask if self.shares_sms and kernel.fills else Task
        task = new(self.machine.latency_ns, self.device[kernel.key], name=kernel.name)
        if isinstance(task, EngineTask):
            task.engine = self.engines["SMs"]
        return self._submit("cudaLaunchKernel", kernel, task)

    def memset(self, fill: Memset) -> bool:
        """Launch a memset."""
        task = Task(self.machine.latency_ns, self.device[fill.key], name=fill.name)
        task.kind, task.size = "gpu_memset", 4_096
        return self._submit("cudaMemsetAsync", fill, task)

    def collective(self, asked: Collective) -> bool:
        """Launch this rank's part of a collective."""
        task = CollectiveTask(self.machine.latency_ns, self.device[asked.key], name=asked.name)
        task.kind, task.size, task.rank = "collective", asked.size, self.rank
        place = (self.number, asked.key)
        task.meeting = self.meetings.setdefault(place, Meeting(self.program.ranks))
        return self._submit("cudaLaunchKernelExC", asked, task)

    def graph(self, graph: GraphLaunch) -> bool:
        """Launch a graph: one entry of the queue, several kernels of one correlation."""
        stream = self._stream(graph.stream)
        if (free := self._free_slot(stream)) < 0:
            return True
        begin = max(self.now, free)
        self.waited["queue"] += begin - self.now
        run = GraphRun(begin + self.machine.graph_latency_ns, gap=self.machine.graph_gap_ns)
        for node in graph.nodes:
            task = Task(0, self.device[node.key], name=node.name)
            branch = GRAPH_STREAM - 1 + node.branch if node.branch else graph.stream
            self._fill(task, branch, begin)
            run.nodes.append((task, node.branch, node.after))
            self.tasks.append(task)
        self._call("cudaGraphLaunch", begin + self.host[graph.key], graph.stream)
        stream.launched.append(run)
        stream.give(run)
        return False

    def idle(self, idle: DeviceIdle) -> None:
        """Let a stream stand still."""
        self._stream(idle.stream).give(Idle(0, self.device[idle.key]))

    def copy(self, copy: Copy) -> bool:
        """Copy memory. Pageable downloads and large pageable uploads return with the transfer."""
        if copy.pageable and (copy.direction == "DtoH" or self._is_large(copy)):
            return self._copy_and_wait(copy)
        return self._submit("cudaMemcpyAsync", copy, self._transfer(copy))

    def _copy_and_wait(self, copy: Copy) -> bool:
        """Give the transfer to the device once, and return when the device is done with it."""
        if self.copying is None:
            self.copying = self._transfer(copy)
            self._fill(self.copying, copy.stream, self.now)
            self.tasks.append(self.copying)
            stream = self._stream(copy.stream)
            stream.launched.append(self.copying)
            stream.give(self.copying)
        if self.copying.end < 0:
            return True
        lag = self.machine.copy_lag_ns
        if copy.direction == "HtoD":
            lag = -min(self.machine.copy_tail_ns, self.copying.ns // 2)
        end = max(self.now + self.host[copy.key], self.copying.end + lag)
        self.waited["sync"] += end - self.now
        self._call("cudaMemcpyAsync", end, copy.stream)
        self.copying = None
        return False

    def _is_large(self, copy: Copy) -> bool:
        return copy.size > self.machine.small_copy

    def _transfer(self, copy: Copy) -> EngineTask:
        lead = self.machine.latency_ns
        if copy.pageable and copy.direction == "HtoD":
            lead = self.machine.copy_head_ns if self._is_large(copy) else self.host[copy.key]
        task = EngineTask(lead, self.device[copy.key], name=copy.name)
        task.kind, task.size = "gpu_memcpy", copy.size
        task.engine = self.engines[copy.direction]
        return task

    def record(self, record: RecordEvent) -> None:
        """Record an event; later waits mean this mark, earlier ones keep theirs."""
        end = self.now + self.host[record.key]
        mark = Mark(self.now + self.machine.latency_ns, number=record.event, stream=record.stream)
        mark.correlation = self.correlation + 1
        self._call("cudaEventRecord", end, record.stream, mark)
        self.marks[record.event] = mark
        self._stream(record.stream).give(mark)

    def wait(self, wait: WaitEvent) -> None:
        """Let a stream wait for an event; one that was never recorded holds nothing back."""
        mark = self.marks.get(wait.event)
        end = self.now + self.host[wait.key]
        gate = Gate(self.now + self.machine.latency_ns, mark=mark, lag=self.machine.event_lag_ns)
        self._call("cudaStreamWaitEvent", end, wait.stream, mark)
        if mark is not None:
            self._stream(wait.stream).give(gate)

    def sync_event(self, sync: SyncEvent) -> bool:
        """Wait for the latest mark of an event."""
        mark = self.marks.get(sync.event)
        reached = mark.end if mark is not None else 0
        return self._sync_until("cudaEventSynchronize", sync.key, reached, -1, mark)

    def sync_stream(self, sync: SyncStream) -> bool:
        """Wait for a stream."""
        reached = self._stream(sync.stream).all_done
        return self._sync_until("cudaStreamSynchronize", sync.key, reached, sync.stream)

    def sync_device(self, sync: SyncDevice) -> bool:
        """Wait for all streams."""
        done = [stream.all_done for stream in self.streams.values()]
        reached = -1 if -1 in done else max(done, default=0)
        return self._sync_until("cudaDeviceSynchronize", sync.key, reached)

    def _sync_until(
        self, name: str, key: int, reached: int, stream: int = -1, mark: Mark | None = None
    ) -> bool:
        """Return from a waiting call once what it waits for was *reached* (-1: not known yet)."""
        if reached < 0:
            return True
        least = self.now + self.host[key]
        end = max(least, reached + self.machine.sync_lag_ns) if reached > self.now else least
        self.waited["sync"] += end - self.now
        self._call(name, end, stream, mark)
        return False

    def _submit(self, name: str, asked: Any, task: Task) -> bool:
        """Launch *task*, whose ``ready`` counts from the launch, as soon as the queue has room."""
        stream = self._stream(asked.stream)
        begin = self.now
        if len(stream.launched) >= self.machine.queue:
            if (free := self._free_slot(stream)) < 0:
                return True
            begin = max(begin, free)
            self.waited["queue"] += begin - self.now
        self._fill(task, asked.stream, begin)
        self._call(name, begin + self.host[asked.key], asked.stream)
        self.tasks.append(task)
        stream.launched.append(task)
        stream.give(task)
        return False

    def _fill(self, task: Task, stream: int, begin: int) -> None:
        task.stream, task.step = stream, self.number
        task.correlation = self.correlation + 1
        task.external = self.open[-1][1] if self.open else 0
        task.ready += begin

    def _free_slot(self, stream: Stream) -> int:
        """Return when the queue has room for one more, or -1 where that is not known yet."""
        queue = self.machine.queue
        return stream.launched[-queue].start if len(stream.launched) >= queue else 0

    def _stream(self, number: int) -> Stream:
        if number not in self.streams:
            self.streams[number] = Stream(self.machine.gap_ns)
        return self.streams[number]

    def _call(self, name: str, end: int, stream: int = -1, mark: Mark | None = None) -> None:
        """Note a call from now to *end*, where the thread then is."""
        self.correlation += 1
        if self.recorded:
            external = self.open[-1][1] if self.open else 0
            ids = (self.correlation, external, self.number)
            self.calls.append(Call(name, self.thread, self.now, end, *ids, stream, mark))
        self.now = end
