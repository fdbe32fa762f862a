"""Ways to train one job on several ranks by sending tensors: pipelines and parameter servers.

They use the process group's own ``send`` and ``recv``, as a script without a library would.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.shaped_network.chains import loss
from benchmarks.shaped_network.models import LEARNING_RATE, MOMENTUM, find_example, lone, sgd
from benchmarks.shaped_network.training import RankTraining

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.shaped_network.models import Lone
    from foretrace.tracer.lab.network.party import Party

PUSH, PULL = 0, 1  # tags


def pipeline(
    name: str,
    party: Party,
    *,
    micro_batches: int,
    schedule: str = "gpipe",
    waits: bool = True,
) -> RankTraining:
    """Train *name* as a pipeline of two stages over *micro_batches* slices of its batch.

    ``schedule`` is "gpipe" or "1f1b". A sender *waits* until its tensor is taken, or goes on and
    waits at the end of the step; the former deadlocks with 1F1B.
    """
    stage = (_FirstStage if party.rank == 0 else _LastStage)(
        name, party, micro_batches, waits=waits
    )
    ahead = {"gpipe": micro_batches, "1f1b": 1 - party.rank}[schedule]
    order = _order(micro_batches, ahead)
    facts = {"cut": f"layers.{find_example(name).cut}", "activation_bytes": stage.activation_bytes}
    sent = micro_batches * stage.activation_bytes
    return RankTraining(partial(stage.step, order), None, sent, lambda: facts)


def _order(micro_batches: int, ahead: int) -> list[tuple[str, int]]:
    """Return forwards and backwards in turn, the forwards so many *ahead*; all of them: GPipe.

    >>> [what[0] + str(index) for what, index in _order(3, ahead=1)]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    order = [("forward", index) for index in range(min(ahead, micro_batches))]
    for index in range(micro_batches):
        if index + ahead < micro_batches:
            order.append(("forward", index + ahead))
        order.append(("backward", index))
    return order


class _Stage:
    """What both stages of a pipeline have: layers, an optimizer, a peer."""

    def __init__(self, name: str, party: Party, micro_batches: int, *, waits: bool) -> None:
        whole, cut = lone(name), find_example(name).cut
        self.party, self.waits = party, waits
        halves = whole.network.layers[:cut], whole.network.layers[cut:]
        self.layers = halves[party.rank]
        self.optimizer = sgd(self.layers)
        self.inputs, self.labels = (part.chunk(micro_batches) for part in whole.batch)
        with torch.no_grad():
            self.buffer = torch.empty_like(halves[0](self.inputs[0]))
        self._alive: dict[int, Any] = {}
        self._sent: list[Any] = []

    @property
    def activation_bytes(self) -> int:
        """Bytes that cross the cut per micro-batch, each way."""
        return self.buffer.numel() * self.buffer.element_size()

    def step(self, order: Sequence[tuple[str, int]]) -> None:
        """Run one iteration in *order*."""
        self.optimizer.zero_grad(set_to_none=True)
        for what, index in order:
            getattr(self, what)(index)
        for work, _tensor in self._sent:
            work.wait()
        self._sent.clear()
        self.optimizer.step()

    def send(self, tensor: Any) -> None:
        """Send *tensor* to the other stage."""
        tensor = tensor.contiguous()
        work = self.party.group.send([tensor], 1 - self.party.rank, PUSH)
        if self.waits:
            work.wait()
        else:
            self._sent.append((work, tensor))

    def receive(self) -> Any:
        """Return what the other stage sends."""
        received = torch.empty_like(self.buffer, memory_format=torch.contiguous_format)
        self.party.group.recv([received], 1 - self.party.rank, PUSH).wait()
        return received


class _FirstStage(_Stage):
    def forward(self, index: int) -> None:
        self._alive[index] = self.layers(self.inputs[index])
        self.send(self._alive[index].detach())

    def backward(self, index: int) -> None:
        self._alive.pop(index).backward(self.receive())


class _LastStage(_Stage):
    def forward(self, index: int) -> None:
        received = self.receive().requires_grad_()
        value = loss(self.layers(received), self.labels[index]) / len(self.labels)
        self._alive[index] = received, value

    def backward(self, index: int) -> None:
        received, value = self._alive.pop(index)
        value.backward()
        self.send(received.grad)


def parameter_server(
    name: str, party: Party, *, mode: str, sleep_ms: float = 0, slow_rank: int = 1
) -> RankTraining:
    """Train *name* with workers that push gradients to one server and pull parameters back.

    ``mode`` is "bsp" (the server waits for all workers) or "asp" (for none). ``slow_rank`` sleeps
    *sleep_ms* at the start of each step.
    """
    job = lone(name)
    if party.is_server:
        server = _Server(job, party)
        serve = {"bsp": server.in_step, "asp": server.one_by_one}[mode]
        return RankTraining(_no_step, None, job.gradient_bytes, server.facts, serve, mode == "bsp")
    worker = _Worker(job, party, sleep_ms / 1e3 if party.rank == slow_rank else 0.0)
    return RankTraining(worker.step, job.clock, job.gradient_bytes, in_step=mode == "bsp")


def _no_step() -> None:
    """Stand for the steps of a server, which `RankTraining.serve` runs."""


class _Worker:
    def __init__(self, job: Lone, party: Party, sleeps_s: float) -> None:
        self.job, self.party, self.sleeps_s = job, party, sleeps_s
        self.parameters = list(job.network.parameters())
        self.flat = torch.empty(job.gradient_bytes // self.parameters[0].element_size())

    def step(self) -> None:
        """Compute a gradient, push it, pull parameters."""
        time.sleep(self.sleeps_s)
        self.job.optimizer.zero_grad(set_to_none=True)
        self.job.network(*self.job.batch).backward()
        group, server = self.party.group, self.party.ranks
        torch.cat([p.grad.flatten() for p in self.parameters], out=self.flat)
        group.send([self.flat], server, PUSH).wait()
        group.recv([self.flat], server, PULL).wait()
        parts = self.flat.split([p.numel() for p in self.parameters])
        with torch.no_grad():
            for parameter, part in zip(self.parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))


class _Server:
    """Holds the parameters; a worker that pushed a gradient gets them back, updated."""

    def __init__(self, job: Lone, party: Party) -> None:
        self.party = party
        self.weights = torch.cat([p.detach().flatten() for p in job.network.parameters()])
        self.velocity = torch.zeros_like(self.weights)
        self.pushed = [torch.empty_like(self.weights) for _ in range(party.ranks)]
        self.update_ns: list[int] = []
        self._updating = threading.Lock()

    def in_step(self, counts: Sequence[int]) -> None:
        """Serve all workers together: one update per step."""
        group, workers = self.party.group, range(self.party.ranks)
        for _ in range(max(counts)):
            for work in [group.recv([self.pushed[w]], w, PUSH) for w in workers]:
                work.wait()
            self.update(torch.stack(self.pushed).mean(0))
            for work in [group.send([self.weights], w, PULL) for w in workers]:
                work.wait()

    def one_by_one(self, counts: Sequence[int]) -> None:
        """Serve each worker by a thread of its own: one update per push.

        A single thread would have to ask which push has arrived, and gloo does not tell.
        """
        with ThreadPoolExecutor(self.party.ranks) as pool:
            workers = range(self.party.ranks)
            for done in [pool.submit(self._serve, w, counts[w]) for w in workers]:
                done.result()

    def _serve(self, worker: int, count: int) -> None:
        group = self.party.group
        for _ in range(count):
            group.recv([self.pushed[worker]], worker, PUSH).wait()
            with self._updating:
                self.update(self.pushed[worker])
                weights = self.weights.clone()
            group.send([weights], worker, PULL).wait()

    def update(self, gradient: Any) -> None:
        """Take one SGD step along *gradient*."""
        began = time.perf_counter_ns()
        self.velocity.mul_(MOMENTUM).add_(gradient)
        self.weights.add_(self.velocity, alpha=-LEARNING_RATE)
        self.update_ns.append(time.perf_counter_ns() - began)

    def facts(self) -> dict[str, Any]:
        """Return how long one update takes, in ns."""
        return {"update_ns": sum(self.update_ns) // max(len(self.update_ns), 1)}
