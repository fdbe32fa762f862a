"""The process of one rank that trains: more commands than `tracer.lab.network.rank_worker` has.

``build`` and ``record`` are about the job alone, ``prepare`` and ``measure`` about the job spread
over the ranks, ``contend`` about computing with collectives behind it.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.shaped_network.contention import contend
from benchmarks.shaped_network.data_parallel import TRAININGS
from benchmarks.shaped_network.models import lone
from benchmarks.shaped_network.training import time_steps
from foretrace.tracer.job import Job
from foretrace.tracer.lab.network.rank_worker import collective_commands, work
from foretrace.tracer.recording.job_metadata import describe_recording
from foretrace.tracer.recording.machine_probe import probe
from foretrace.tracer.recording.recorder import Recorder, drive, schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.shaped_network.models import Lone
    from benchmarks.shaped_network.training import RankTraining
    from foretrace.tracer.lab.network.party import Party
    from foretrace.tracer.lab.network.rank_worker import Commands

FIRST_STEPS = 4  # torch rebuilds its buckets after one, PowerSGD begins after two


def training_commands(party: Party, device: str) -> Commands:
    """Return what a rank that trains can be told."""
    rank = Rank(party, device)
    return {
        **collective_commands(party, device),
        "build": rank.build,
        "record": rank.record,
        "prepare": rank.prepare,
        "measure": rank.measure,
        "contend": partial(contend, party),
    }


class Rank:
    """One rank's job alone, and the same job spread over all ranks."""

    def __init__(self, party: Party, device: str) -> None:
        """Take part as *party*; bytes are counted on the network *device*."""
        self.party, self.device = party, device
        self.job: Lone | None = None
        self.training: RankTraining | None = None

    def build(self, *, model: str, warmup: int = 5) -> dict[str, Any]:
        """Build the job *model*, connected with nobody, and run it a few times."""
        if self.party.is_server:
            return {}
        self.job = lone(model)
        time_steps(self.job.step, None, warmup)
        parameters = self.job.network.named_parameters()
        return {"parameters": [[n, list(p.shape), str(p.dtype)] for n, p in parameters]}

    def record(self, *, path: str, command: str) -> dict[str, Any]:
        """Record that job while all ranks run it; rank 0 writes *path*. Returns the facts."""
        if self.job is None:
            return {}
        alone = self.job
        job = Job(alone.step, alone.network, alone.optimizer, len(alone.batch[0]), name=alone.name)
        probe()
        recorder = Recorder(job, schedule(windows=3), between=lambda _block: self.party.meet())
        with recorder:
            drive(alone.step, recorder)
        if self.party.rank == 0:
            recorder.export(Path(path))
        return {"facts": {**describe_recording(recorder), "command": command}}

    def prepare(self, *, training: str, model: str, options: dict[str, Any]) -> dict[str, Any]:
        """Build *training*, one of `TRAININGS`, of *model* and run its first steps."""
        self.training = None
        self.training = TRAININGS[training](model, self.party, **options)
        self._run([FIRST_STEPS] * self.party.ranks)
        return {}

    def measure(self, *, seconds: float, fewest: int, most: int, lone_steps: int) -> dict[str, Any]:
        """Run steps for about *seconds*, and *lone_steps* of the lone job before and after them."""
        assert self.training is not None
        party, before = self.party, self._lone(lone_steps)
        estimate, _ = self._run([1] * party.ranks)
        counts = self._counts(party.gather(sum(estimate)), seconds, fewest, most)
        party.meet()
        sent = _sent_bytes(self.device)
        steps, forwards = self._run(counts)
        party.meet()
        sent = _sent_bytes(self.device) - sent
        after = self._lone(lone_steps)
        return {
            "step_ns": steps,
            "forward_ns": forwards,
            "lone_ns": before[0] + after[0],
            "lone_forward_ns": before[1] + after[1],
            "tx_bytes": sent,
            "expected_bytes": self.training.expected_bytes(counts, party.rank),
            "facts": self.training.facts(),
        }

    def _run(self, counts: Sequence[int]) -> tuple[list[int], list[int]]:
        assert self.training is not None
        return self.training.run(counts, self.party.rank)

    def _counts(
        self, estimates_ns: Sequence[int], seconds: float, fewest: int, most: int
    ) -> list[int]:
        """Return how many steps each rank makes: as many as the slowest, where they wait for it."""
        assert self.training is not None
        own = estimates_ns[: self.party.ranks]
        each = own if not self.training.in_step else [max(own)] * len(own)
        return [min(max(round(seconds * 1e9 / ns), fewest), most) for ns in each]

    def _lone(self, steps: int) -> tuple[list[int], list[int]]:
        """Return the times of *steps* of the lone job and of its forwards; all ranks run it now."""
        self.party.meet()
        if self.job is None:
            return [], []
        time_steps(self.job.step, None, 1)
        return time_steps(self.job.step, self.job.clock, steps)


def _sent_bytes(device: str) -> int:
    counter = Path(f"/sys/class/net/{device}/statistics/tx_bytes")
    return int(counter.read_text("ascii")) if counter.exists() else 0


if __name__ == "__main__":  # pragma: no cover - runs in a process of its own
    work(sys.argv[1:], training_commands)
