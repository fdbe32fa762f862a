"""Backward passes of a step: which of them exchange gradients."""

from __future__ import annotations

import pytest

from foretrace.errors import TransformError
from foretrace.transforms.costs.assumed import noting_use, read_as
from foretrace.transforms.distributed.common.backward_passes import WITHOUT_NO_SYNC, find_moments
from foretrace.transforms.distributed.common.dense_gradients import find_once
from foretrace.transforms.distributed.common.gradients import find_gradients
from tests.support.jobs.gradients import accumulating_job, cpu_job, passes_job


def test_passes_with_an_update_between_them_exchange_each() -> None:
    """Two epochs over the same data, as in PPO, are no accumulation."""
    moments = find_moments(passes_job("ab", "ab"))

    assert moments.turn.tolist() == [0, 0, 1, 1]


def test_passes_before_one_update_exchange_once_unless_told() -> None:
    """Who accumulates does so under no_sync; who does not says so."""
    graph = accumulating_job(passes=3)

    assert len(find_moments(graph).step) == 2
    assert len(find_moments(graph, no_sync=True).step) == 2
    assert find_moments(graph, no_sync=False).turn.tolist() == [0, 0, 1, 1, 2, 2]


def test_what_no_sync_would_do_is_noted_where_nobody_says() -> None:
    """The interval of the answer spans both readings."""
    graph = accumulating_job(passes=2)
    with noting_use() as used:
        find_moments(graph)
    with noting_use() as unused:
        find_moments(graph, no_sync=True)
        find_moments(cpu_job())
    with read_as(WITHOUT_NO_SYNC, WITHOUT_NO_SYNC.most):
        every = find_moments(graph)

    assert list(used) == [WITHOUT_NO_SYNC]
    assert not unused
    assert len(every.step) == 4


def test_zeroing_gradients_is_no_update() -> None:
    """`zero_grad` runs in the optimizer's name, and ends no accumulation."""
    graph = passes_job("ab", "ab", update="Optimizer.zero_grad#SGD.zero_grad")

    assert find_moments(graph).turn.tolist() == [1, 1]


def test_parameters_are_named_anew_in_every_pass() -> None:
    """The second pass has gradients of the same two parameters."""
    found = find_gradients(passes_job("ab", "ab"))

    assert [(each.name, each.turn) for each in found] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_what_knows_one_exchange_refuses_several() -> None:
    """Sharded parameters, servers and the like are modelled for one exchange per step."""
    with pytest.raises(TransformError, match="a step of this job has 2 backward passes"):
        find_once(passes_job("ab", "ab"), "fsdp")
