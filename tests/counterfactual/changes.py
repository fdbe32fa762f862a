"""Changes of a program, each with the what-if that asks for the same change of a recording."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.counterfactual.program import (
    Backward,
    Collective,
    Copy,
    DeviceIdle,
    GraphLaunch,
    HostWork,
    Launch,
    Memset,
    Node,
    Range,
    SyncDevice,
    SyncEvent,
    SyncStream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.counterfactual.program import Program

SYNC_NAMES = {
    SyncDevice: "cudaDeviceSynchronize",
    SyncStream: "cudaStreamSynchronize",
    SyncEvent: "cudaEventSynchronize",
}
HOST_COSTS = (
    *("launch_ns", "graph_launch_ns", "copy_call_ns", "event_call_ns", "sync_call_ns"),
    *("fork_ns", "join_ns", "between_steps_ns"),
)


@dataclass(frozen=True, slots=True)
class FasterKernels:
    """All device work whose name matches takes 1/speedup of its time."""

    pattern: str
    speedup: float

    @property
    def text(self) -> str:
        """The what-if."""
        return f"faster_kernels(pattern={self.pattern!r}, speedup={self.speedup})"

    def of(self, program: Program) -> Program:
        """Return the changed program."""
        return _with_names(program, self.pattern, lambda task: _scaled(task, 1 / self.speedup))


@dataclass(frozen=True, slots=True)
class ReplaceKernel:
    """All kernels whose name matches take *duration_us*."""

    pattern: str
    duration_us: float

    @property
    def text(self) -> str:
        """The what-if."""
        return f"replace_kernel(pattern={self.pattern!r}, duration_us={self.duration_us})"

    def of(self, program: Program) -> Program:
        """Return the changed program."""
        ns = round(self.duration_us * 1_000)

        def replaced(task: Any) -> Any:
            exact = {"exact": True} if isinstance(task, Launch | Node) else {}
            return replace(task, ns=ns, **exact)

        return _with_names(program, self.pattern, replaced)


@dataclass(frozen=True, slots=True)
class FasterHost:
    """Everything on the host takes 1/speedup of its time: calls, workers, what nobody recorded."""

    speedup: float

    @property
    def text(self) -> str:
        """The what-if."""
        return f"faster_host(speedup={self.speedup})"

    def of(self, program: Program) -> Program:
        """Return the changed program."""

        def shorter(operation: Any) -> Any:
            if isinstance(operation, HostWork):
                return replace(operation, ns=round(operation.ns / self.speedup))
            return operation

        machine = program.machine
        costs = {name: round(getattr(machine, name) / self.speedup) for name in HOST_COSTS}
        rate = round(machine.stage_bytes_per_us * self.speedup)
        machine = replace(machine, stage_bytes_per_us=rate, **costs)
        loader = program.loader
        if loader is not None:
            batch, handover = loader.batch_ns / self.speedup, loader.handover_ns / self.speedup
            loader = replace(loader, batch_ns=round(batch), handover_ns=round(handover))
        step = mapped(program.step, shorter)
        return replace(program, step=step, machine=machine, loader=loader)


@dataclass(frozen=True, slots=True)
class RemoveSync:
    """Waits whose call or operator matches are gone; a download goes with its wait."""

    pattern: str

    @property
    def text(self) -> str:
        """The what-if."""
        return f"remove_sync(pattern={self.pattern!r})"

    def of(self, program: Program) -> Program:
        """Return the changed program."""
        return replace(program, step=tuple(self._kept(program.step, inside=False)))

    def _kept(self, step: tuple[Any, ...], *, inside: bool) -> list[Any]:
        kept: list[Any] = []
        for operation in step:
            if isinstance(operation, Range | Backward):
                name = operation.name if isinstance(operation, Range) else ""
                matches = inside or bool(name and re.search(self.pattern, name))
                body = tuple(self._kept(operation.body, inside=matches))
                kept.append(replace(operation, body=body))
            elif isinstance(operation, Copy) and operation.pageable:
                matches = inside or bool(re.search(self.pattern, operation.name))
                if matches and operation.direction == "HtoD":
                    kept.append(replace(operation, pageable=False))
                elif not matches:
                    kept.append(operation)
            elif type(operation) in SYNC_NAMES:
                name = SYNC_NAMES[type(operation)]
                if not inside and not re.search(self.pattern, name):
                    kept.append(operation)
            else:
                kept.append(operation)
        return kept


@dataclass(frozen=True, slots=True)
class Workers:
    """The loader has another number of workers."""

    workers: int
    recorded: int

    @property
    def text(self) -> str:
        """The what-if."""
        known = f", recorded_workers={self.recorded}" if self.recorded else ""
        return f"dataloader(workers={self.workers}{known})"

    def of(self, program: Program) -> Program:
        """Return the changed program."""
        assert program.loader is not None
        return replace(program, loader=replace(program.loader, workers=self.workers))


@dataclass(frozen=True, slots=True)
class Network:
    """The links are *bandwidth* times as fast."""

    bandwidth: float

    @property
    def text(self) -> str:
        """The what-if."""
        return f"network(bandwidth={self.bandwidth})"

    def of(self, program: Program) -> Program:
        """Return the changed program."""

        def sooner(operation: Any) -> Any:
            if isinstance(operation, Collective):
                return replace(operation, transfer_ns=round(operation.transfer_ns / self.bandwidth))
            return operation

        return replace(program, step=mapped(program.step, sooner))


Change = FasterKernels | ReplaceKernel | FasterHost | RemoveSync | Workers | Network


def _with_names(program: Program, pattern: str, edit: Callable[[Any], Any]) -> Program:
    """Edit every device task of *program* whose name matches."""

    def edited(operation: Any) -> Any:
        if isinstance(operation, GraphLaunch):
            nodes = tuple(
                edit(node) if re.search(pattern, node.name) else node for node in operation.nodes
            )
            return replace(operation, nodes=nodes)
        is_task = isinstance(operation, Launch | Memset | Collective | Copy)
        return edit(operation) if is_task and re.search(pattern, operation.name) else operation

    return replace(program, step=mapped(program.step, edited))


def _scaled(task: Any, factor: float) -> Any:
    if isinstance(task, Collective):
        latency, transfer = task.latency_ns * factor, task.transfer_ns * factor
        return replace(task, latency_ns=round(latency), transfer_ns=round(transfer))
    assert not isinstance(task, DeviceIdle)
    return replace(task, ns=max(round(task.ns * factor), 1))


def mapped(step: tuple[Any, ...], edit: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return *step* with every operation edited, those of ranges included."""
    return tuple(
        replace(operation, body=mapped(operation.body, edit))
        if isinstance(operation, Range | Backward)
        else edit(operation)
        for operation in step
    )
