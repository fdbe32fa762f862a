"""The slowest of several ranks, from the variation of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.transforms.distributed.common.slowest_of_n import late_ns, slowest_of
from tests.support.jobs.simple import META, cpu_job, gpu_job

STEPS = st.lists(st.integers(1, 10**9), min_size=4, max_size=40)


def test_two_ranks_wait_for_the_later_one() -> None:
    """Of two draws from 10 and 20 three in four pairs hold a 20."""
    assert slowest_of([10, 20], 2) == 17.5


@given(STEPS, st.integers(1, 8))
def test_more_ranks_are_never_faster(samples: list[int], count: int) -> None:
    """From the mean of one up to the slowest step ever seen."""
    one, few, more = (slowest_of(samples, n) for n in (1, count, count + 1))

    assert one == pytest.approx(np.mean(samples))
    assert one <= few * (1 + 1e-12) <= more * (1 + 1e-9)
    assert more <= max(samples) * (1 + 1e-12)


def test_the_order_statistic_is_what_draws_show() -> None:
    """20,000 times the largest of 4."""
    samples = [100, 101, 103, 110, 140]
    draws = np.random.default_rng(1).choice(samples, (20_000, 4)).max(axis=1)

    assert slowest_of(samples, 4) == pytest.approx(draws.mean(), abs=0.5)


def test_a_cpu_job_varies_as_its_unprofiled_steps_do() -> None:
    """10 and 14 ms in turn: the later of two is 1 ms behind the mean; one rank waits for nobody."""
    meta = replace(META, unprofiled_step_ns=(10_000_000, 14_000_000) * 2)
    graph = replace(cpu_job(), meta=meta, step_samples_ns=(1, 2, 3, 4))

    assert late_ns(graph, 2) == 1_000_000
    assert late_ns(graph, 1) == 0


def test_a_gpu_job_varies_as_its_recorded_steps_do() -> None:
    """Its unprofiled times are means of blocks, which vary less."""
    graph = gpu_job()
    meta = replace(graph.meta, unprofiled_step_ns=(10_000_000,) * 8)
    graph = replace(graph, meta=meta, step_samples_ns=(10_000_000, 14_000_000) * 2)

    assert late_ns(graph, 2) == 1_000_000


def test_too_few_steps_say_nothing() -> None:
    """Three steps have no distribution."""
    assert late_ns(replace(cpu_job(), step_samples_ns=(1, 9, 5)), 8) == 0


def test_one_outlier_in_ten_is_left_out() -> None:
    """A step disturbed by something else is no property of the job."""
    quiet = (100,) * 9
    graph = replace(cpu_job(), step_samples_ns=(*quiet, 10_000))

    assert late_ns(graph, 64) == 0
