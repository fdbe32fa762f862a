"""What every single operation takes: its mean, times a draw that belongs to its step and key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

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
    Node,
    RecordEvent,
    SyncDevice,
    SyncEvent,
    SyncStream,
    WaitEvent,
    walk,
)

if TYPE_CHECKING:
    from tests.counterfactual.program import Loader, Machine, Program


@dataclass(slots=True, frozen=True)
class Times:
    """Nanoseconds by step and key; key 0 is the time between steps, and a batch of the loader."""

    host: list[list[int]]
    device: list[list[int]]


def draw_times(program: Program, rank: int, steps: int) -> Times:
    """Draw the times of *rank*.

    A change of the program changes means, never draws: what it leaves alone takes as long as
    before, in every step.
    """
    operations = list(walk(program.step))
    keys = 1 + max((getattr(each, "key", 0) for each in operations), default=0)
    loader = program.loader
    host, device = np.zeros((2, keys))
    host[0] = program.machine.between_steps_ns
    device[0] = loader.batch_ns if loader else 0
    for operation in operations:
        if hasattr(operation, "key"):
            host[operation.key] = _host_ns(operation, program.machine, loader)
            device[operation.key] = _device_ns(operation, program.slowness[rank])
    draws = np.random.default_rng((program.seed, rank)).standard_normal((2, steps, keys))
    spread = np.array([program.host_jitter, program.device_jitter])[:, None, None]
    times = np.rint(np.exp(spread * draws - spread**2 / 2) * np.stack([host, device])[:, None])
    drawn = times.astype(np.int64).tolist()
    return Times(*drawn)


def _host_ns(operation: Any, machine: Machine, loader: Loader | None) -> int:
    calls = {
        Launch: machine.launch_ns,
        Memset: machine.launch_ns,
        Collective: machine.launch_ns,
        GraphLaunch: machine.graph_launch_ns,
        Copy: machine.copy_call_ns,
        RecordEvent: machine.event_call_ns,
        WaitEvent: machine.event_call_ns,
        SyncEvent: machine.sync_call_ns,
        SyncStream: machine.sync_call_ns,
        SyncDevice: machine.sync_call_ns,
        Backward: machine.fork_ns,
        NextBatch: loader.handover_ns if loader else 0,
    }
    if isinstance(operation, HostWork):
        return operation.ns
    staging = _staging_ns(operation, machine) if isinstance(operation, Copy) else 0
    return calls.get(type(operation), 0) + staging


def _device_ns(operation: Any, slowness: float) -> float:
    match operation:
        case Launch() | Node():
            return max(operation.ns * (1 if operation.exact else slowness), 1)
        case Collective():
            return operation.latency_ns + operation.transfer_ns
        case Copy() | Memset() | DeviceIdle():
            return operation.ns
    return 0


def _staging_ns(copy: Copy, machine: Machine) -> int:
    """Return how long the host copies into pinned memory, before a small upload begins."""
    staged = copy.pageable and copy.direction == "HtoD" and copy.size <= machine.small_copy
    return copy.size * 1_000 // machine.stage_bytes_per_us if staged else 0
