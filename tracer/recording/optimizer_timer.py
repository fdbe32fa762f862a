"""Time the optimizer from within, by its own hooks: what an update takes without a profiler."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


OPTIMIZER_TIMES = "optimizer_step_ns"
"""In `TraceMeta.extra`: the optimizer's host time in each unprofiled step."""


class Updates:
    """When each update began and ended, on the host, in ns."""

    def __init__(self) -> None:
        """Start with none."""
        self._spans: list[tuple[int, int]] = []
        self._began: list[int] = []

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note every update of any optimizer of this process while this is open."""
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        hooks = [
            register_optimizer_step_pre_hook(self._begin),
            register_optimizer_step_post_hook(self._end),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def per_step(self, stamps: Sequence[int]) -> list[int]:
        """Return the time of all updates between each two of *stamps*, and forget them all.

        Empty where there was no update at all.
        """
        spans, self._spans, self._began = self._spans, [], []
        return [
            sum(end - begin for begin, end in spans if start <= begin < stop)
            for start, stop in pairwise(stamps)
            if spans
        ]

    def _begin(self, *_step: Any) -> None:
        self._began.append(time.perf_counter_ns())

    def _end(self, *_step: Any) -> None:
        began = self._began.pop()
        if not self._began:  # an optimizer may step another one
            self._spans.append((began, time.perf_counter_ns()))
