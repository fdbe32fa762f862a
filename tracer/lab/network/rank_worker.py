"""The process of one rank: commands come in as JSON lines, one reply each goes out.

Started inside the rank's namespace, with allocator, threads and core fixed before torch computes.
It ends with the process that started it, and when its standard input is closed.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from foretrace.tracer.child_process import end_with
from foretrace.tracer.lab.network.training import Party, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foretrace.tracer.lab.network.models import Lone
    from foretrace.tracer.lab.network.training import Training

TIMEOUT = timedelta(seconds=60)
FIRST_STEPS = 4  # torch rebuilds its buckets after one, PowerSGD begins after two


class Rank:
    """Answers the commands of one rank."""

    def __init__(self, party: Party, device: str) -> None:
        """Take part as *party*; bytes are counted on the network *device*."""
        self.party, self.device = party, device
        self.job: Lone | None = None
        self.training: Training | None = None
        self._answers: dict[str, Callable[..., Any]] = {
            "build": self.build,
            "record": self.record,
            "prepare": self.prepare,
            "measure": self.measure,
            "sweep": self.sweep,
            "contend": self.contend,
        }

    def answer(self, command: dict[str, Any]) -> Any:
        """Do what *command* says: its "do" is a method's name, the rest its arguments."""
        return self._answers[command.pop("do")](**command)

    def build(self, *, model: str, warmup: int = 5) -> dict[str, Any]:
        """Build the job *model*, connected with nobody, and run it a few times."""
        from foretrace.tracer.lab.network.models import lone

        if self.party.is_server:
            return {}
        self.job = lone(model)
        timed(self.job.step, None, warmup)
        parameters = self.job.network.named_parameters()
        return {"parameters": [[n, list(p.shape), str(p.dtype)] for n, p in parameters]}

    def record(self, *, path: str, command: str) -> dict[str, Any]:
        """Record that job while all ranks run it; rank 0 writes *path*. Returns the facts."""
        from foretrace.tracer.job import Job
        from foretrace.tracer.recording.machine_probe import probe
        from foretrace.tracer.recording.record import drive, facts
        from foretrace.tracer.recording.recorder import Recorder, schedule

        if self.job is None:
            return {}
        lone = self.job
        job = Job(lone.step, lone.network, lone.optimizer, len(lone.batch[0]), name=lone.name)
        probe()
        recorder = Recorder(job, schedule(windows=3), between=lambda _block: self.party.meet())
        with recorder:
            drive(lone.step, recorder)
        if self.party.rank == 0:
            recorder.export(Path(path))
        return {"facts": {**facts(recorder), "command": command}}

    def prepare(self, *, training: str, model: str, options: dict[str, Any]) -> dict[str, Any]:
        """Build *training*, one of `TRAININGS`, of *model* and run its first steps."""
        from foretrace.tracer.lab.network.schemes import TRAININGS

        self.training = None
        self.training = TRAININGS[training](model, self.party, **options)
        self._run(self._each(FIRST_STEPS))
        return {}

    def measure(self, *, seconds: float, fewest: int, most: int, lone_steps: int) -> dict[str, Any]:
        """Run steps for about *seconds*, and *lone_steps* of the lone job before and after them."""
        assert self.training is not None
        party, before = self.party, self._lone(lone_steps)
        estimate, _ = self._run(self._each(1))
        counts = self._counts(party.gathered(sum(estimate)), seconds, fewest, most)
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

    def sweep(self, **arguments: Any) -> list[int]:
        """Run a collective alone, again and again; return when it ended."""
        from foretrace.tracer.lab.network.sweeps import sweep

        return sweep(self.party, **arguments)

    def contend(self, **arguments: Any) -> dict[str, Any]:
        """Compute with collectives behind it."""
        from foretrace.tracer.lab.network.sweeps import contend

        return contend(self.party, **arguments)

    def _run(self, counts: Sequence[int]) -> tuple[list[int], list[int]]:
        assert self.training is not None
        return self.training.run(counts, self.party.rank)

    def _each(self, count: int) -> list[int]:
        return [count] * self.party.ranks

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
        timed(self.job.step, None, 1)
        return timed(self.job.step, self.job.clock, steps)


def _sent_bytes(device: str) -> int:
    counter = Path(f"/sys/class/net/{device}/statistics/tx_bytes")
    return int(counter.read_text("ascii")) if counter.exists() else 0


def serve(rank: Rank, commands: TextIO, replies: TextIO) -> None:
    """Answer every line of *commands* by one line; a failure is answered, too, and is the last."""
    for line in commands:
        try:
            reply = {"reply": rank.answer(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - whatever torch raises, the peers must hear of it
            text = (str(error).splitlines() or [""])[0]
            reply = {"error": f"rank {rank.party.rank}: {type(error).__name__}: {text}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if "error" in reply:
            break


def settle(party: Party) -> None:  # pragma: no cover - binds the whole process
    """Bind this process to a core, ranks in turn, and torch to one thread; a server goes free.

    One with a device takes that of its rank.
    """
    import torch

    usable = sorted(os.sched_getaffinity(0))
    if not party.is_server:
        os.sched_setaffinity(0, {usable[party.rank % len(usable)]})
    torch.set_num_threads(1)
    if party.device != "cpu":
        torch.cuda.set_device(party.device)


def main(arguments: Sequence[str]) -> None:  # pragma: no cover - runs in a process of its own
    """Take part as *arguments* say.

    Rank, ranks, servers, address and port of rank 0, network device, parent process, backend.
    """
    rank, ranks, servers, parent = (int(arguments[place]) for place in (0, 1, 2, 5))
    address, device = arguments[3:5]
    backend = arguments[6]
    holds = f"cuda:{rank}" if backend == "nccl" else "cpu"
    end_with(parent)
    warnings.filterwarnings("ignore")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed is no reply
    settle(Party(rank, ranks, servers, None, holds))
    import torch.distributed as dist

    dist.init_process_group(
        backend,
        init_method=f"tcp://{address}",
        rank=rank,
        world_size=ranks + servers,
        timeout=TIMEOUT,
    )
    replies.write(json.dumps({"reply": "ready"}) + "\n")
    replies.flush()
    party = Party(rank, ranks, servers, dist.group.WORLD, holds)
    serve(Rank(party, device), sys.stdin, replies)
    sys.stderr.flush()
    os._exit(0)  # threads of gloo that are still alive would abort an orderly end


if __name__ == "__main__":  # pragma: no cover - same
    main(sys.argv[1:])
