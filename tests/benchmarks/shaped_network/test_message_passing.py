"""Pipelines and parameter servers, on ranks that are threads: the same training, other messages."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.measured.rank_threads import together

torch = pytest.importorskip("torch")

from benchmarks.shaped_network import chains, message_passing, models  # noqa: E402 - where torch is

if TYPE_CHECKING:
    from foretrace.tracer.lab.network.party import Party


def _tiny() -> chains.LayerChain:
    return chains.LayerChain(*(torch.nn.Linear(8, 8) for _ in range(4)))


@pytest.fixture(autouse=True)
def _tiny_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train 4 layers of 8 x 8 on 8 samples; the gradient has 4 x 72 x 4 = 1,152 bytes."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    example = chains.Example(_tiny, chains.vectors, 8, {"width": 8, "classes": 8}, cut=2)
    monkeypatch.setitem(models.EXAMPLES, "tiny", example)
    building = threading.Lock()  # the random seed is one for all threads

    def lone(name: str) -> models.Lone:
        with building:
            return models.lone(name)

    monkeypatch.setattr(message_passing, "lone", lone)


def _trained_alone(steps: int) -> list[Any]:
    job = models.lone("tiny")
    for _ in range(steps):
        job.step()
    return [p.detach().clone() for p in job.network.parameters()]


@pytest.mark.parametrize(
    "options",
    [
        {"micro_batches": 1},
        {"micro_batches": 4},
        {"micro_batches": 2, "schedule": "1f1b", "waits": False},
        {"micro_batches": 4, "schedule": "1f1b", "waits": False},
    ],
    ids=["gpipe 1", "gpipe 4", "1f1b 2", "1f1b 4"],
)
def test_a_pipeline_trains_as_one_process_does(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stages together end with the weights of the job alone; bytes are those of activations."""
    stages: list[Any] = []
    kept = message_passing._Stage.__init__

    def keep(self: Any, *arguments: Any, **options: Any) -> None:
        kept(self, *arguments, **options)
        stages.append(self)

    monkeypatch.setattr(message_passing._Stage, "__init__", keep)

    def train(party: Party) -> Any:
        training = message_passing.pipeline("tiny", party, **options)
        return training, training.run([2, 2], party.rank)

    trainings = together(train, ranks=2)

    parts = [p for s in sorted(stages, key=lambda s: s.party.rank) for p in s.layers.parameters()]
    for expected, found in zip(_trained_alone(2), parts, strict=True):
        torch.testing.assert_close(found.detach(), expected)
    for training, (steps, forwards) in trainings:
        assert training.expected_bytes([2, 2], 0) == 2 * 8 * 8 * 4
        assert training.facts() == {
            "cut": "layers.2",
            "activation_bytes": 8 * 8 * 4 // options["micro_batches"],
        }
        assert (len(steps), forwards) == (2, [])


def test_the_first_stage_is_one_forward_ahead() -> None:
    """1F1B keeps at most two micro-batches alive there, GPipe all of them."""
    first, last = message_passing._order(3, 1), message_passing._order(3, 0)
    assert [what[0] + str(index) for what, index in first] == ["f0", "f1", "b0", "f2", "b1", "b2"]
    assert [what[0] + str(index) for what, index in last] == ["f0", "b0", "f1", "b1", "f2", "b2"]
    gpipe = message_passing._order(2, 2)
    assert [what[0] + str(index) for what, index in gpipe] == ["f0", "f1", "b0", "b1"]


def test_workers_in_step_train_as_one_process_does() -> None:
    """Both have the same batch: the mean gradient is that of the job alone, and so are weights."""

    def train(party: Party) -> Any:
        training = message_passing.parameter_server("tiny", party, mode="bsp")
        times = training.run([3, 3], party.rank)
        return training, times, getattr(training.step, "__self__", None)

    first, second, server = together(train, ranks=2, servers=1)

    for _, (steps, forwards), worker in (first, second):
        assert len(steps) == len(forwards) == 3
        for expected, found in zip(_trained_alone(3), worker.parameters, strict=True):
            torch.testing.assert_close(found.detach(), expected)
    assert [t.expected_bytes([3, 3], 0) for t, *_ in (first, server)] == [3 * 1152, 6 * 1152]
    assert server[0].facts()["update_ns"] > 0
    assert server[1] == ([], [])
    assert first[0].in_step


def test_workers_that_do_not_wait_make_steps_of_their_own() -> None:
    """One makes three steps, the slow one makes one; the server answers each push."""

    def train(party: Party) -> Any:
        training = message_passing.parameter_server("tiny", party, mode="asp", sleep_ms=5)
        return training, training.run([3, 1], party.rank)

    (fast, fast_times), (_, slow_times), (server, _) = together(train, ranks=2, servers=1)

    assert (len(fast_times[0]), len(slow_times[0])) == (3, 1)
    assert slow_times[0][0] > 5_000_000
    assert not fast.in_step
    assert server.expected_bytes([3, 1], 2) == 4 * 1152
