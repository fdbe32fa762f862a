"""One profiled window: torch.profiler started and stopped around a block of steps.

Comes out: a Kineto JSON file. The profiler's own start, stop and export are never timed.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEP_RANGE = "ProfilerStep#"


class ProfilerWindow:
    """A recording of a few steps; `start`, `stop`, then `export`."""

    def __init__(self, *, shapes: bool = True) -> None:
        """Set the profiler up, with *shapes* of operators' inputs and memory events or without."""
        from torch.profiler import ProfilerActivity, profile, supported_activities

        wanted = {ProfilerActivity.CPU, ProfilerActivity.CUDA} & set(supported_activities())
        self._profiler = profile(
            activities=sorted(wanted, key=str),
            record_shapes=shapes,
            profile_memory=shapes,
            with_flops=shapes,
            experimental_config=_experimental(),
        )

    def start(self) -> None:
        """Start recording.

        Raises
        ------
        RecordError
            Another profiler of this process is running.
        """
        import torch

        if torch._C._autograd._profiler_enabled():  # noqa: SLF001 - no public form
            raise RecordError(
                "a profiler is running already: stop the one that the job starts itself"
            )
        with quiet_stderr():
            self._profiler.start()

    def stop(self) -> None:
        """Stop recording."""
        with quiet_stderr():
            self._profiler.stop()

    def export(self, path: Path) -> None:
        """Write the Kineto JSON to *path*."""
        with quiet_stderr():
            self._profiler.export_chrome_trace(str(path))

    def events(self) -> list[Any]:
        """Return what was recorded as torch's own events, in no particular order."""
        return list(self._profiler.profiler.kineto_results.events())

    def flops(self) -> list[tuple[str, int, int]]:
        """Return (operator, start in ns, FLOP) of what torch counts; the JSON lacks it."""
        return sorted(
            (event.name(), event.start_ns(), event.flops())
            for event in self.events()
            if event.flops() > 0
        )


def step_range(number: int) -> Any:
    """Return an open range that marks step *number*; close it with ``__exit__``."""
    from torch.profiler import record_function

    opened = record_function(f"{STEP_RANGE}{number}")
    opened.__enter__()
    return opened


def _experimental() -> Any:
    """Return settings that not every build has: CUDA synchronisation events."""
    import torch

    with suppress(AttributeError, TypeError):
        return torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)  # noqa: SLF001 - no public form
    return None  # pragma: no cover - builds before 2.1


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Send file descriptor 2 nowhere: Kineto writes a line there at every start and stop."""
    try:
        kept = os.dup(2)
    except OSError:  # closed by the user
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
