"""Steps of a rank: how many, how long, what they must have sent."""

from __future__ import annotations

from benchmarks.shaped_network.training import RankTraining, time_steps


class Clock:
    """Says 7 ns for every forward since it was last asked."""

    def __init__(self) -> None:
        """Count from nothing."""
        self.forwards = 0

    def take(self) -> int:
        """Return the time and start again."""
        taken, self.forwards = 7 * self.forwards, 0
        return taken


def test_a_step_and_its_forward_are_timed_each() -> None:
    """What the clock counted before is left out."""
    clock = Clock()
    clock.forwards = 5

    def step() -> None:
        clock.forwards += 2

    steps, forwards = time_steps(step, clock, 3)  # type: ignore[arg-type]
    assert len(steps) == 3
    assert min(steps) > 0
    assert forwards == [14, 14, 14]


def test_without_a_clock_forwards_are_unknown() -> None:
    """As in a pipeline, where forwards wait for each other."""
    assert time_steps(lambda: None, None, 2)[1] == []


def test_a_rank_makes_its_own_number_of_steps() -> None:
    """Each rank finds its number in the list, and its bytes go with it."""
    made: list[int] = []
    training = RankTraining(lambda: made.append(1), None, sent_bytes=10)

    assert len(training.run([2, 3], 1)[0]) == len(made) == 3
    assert [training.expected_bytes([2, 3], rank) for rank in (0, 1)] == [20, 30]
    assert training.facts() == {}
    assert RankTraining(lambda: None).expected_bytes([2], 0) is None


def test_a_server_answers_all_steps() -> None:
    """It has no steps of its own and sends for every worker's."""
    served: list[object] = []
    server = RankTraining(lambda: None, None, sent_bytes=10, serve=served.append)

    assert server.run([2, 3], 2) == ([], [])
    assert served == [[2, 3]]
    assert server.expected_bytes([2, 3], 2) == 50
