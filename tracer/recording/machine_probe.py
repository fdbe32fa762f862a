"""What this machine can do: cores, matrix product and memory rates, measured in a few seconds.

Comes out: one dictionary, as `TraceMeta.machine` keeps it. Rates are those of the CPU at the
number of threads that torch uses now, since that is what the job gets. A process of its own
measures them (`machine_rates`): the large buffers that it frees would teach the allocator of the
job's process to keep memory, and its steps would lack the page faults of a plain run.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError
from foretrace.tracer.child_process import plain_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

DISAGREEMENT_LIMIT = 0.15
"""Two probes around a recording that differ by more (share) show a machine that was not quiet."""

PATIENCE_S = 300.0
MODULE = "foretrace.tracer.recording.machine_rates"


def probe() -> dict[str, Any]:
    """Return what this process can use of the machine; measured once per number of threads.

    Keys: ``cores`` (those this process may use), ``threads`` (torch's), ``fp32_gflops`` and
    ``bf16_gflops`` (the three products of a linear layer's forward and backward together),
    ``conv_fp32_gflops`` and ``conv_bf16_gflops`` (forward and backward of a 3x3 convolution),
    ``copy_gbps``, ``add_gbps`` and ``cast_gbps`` (bytes read plus written, beyond the caches),
    ``update_gbps`` (the same for a fused Adam's 7 passes, which work in place),
    ``products`` (rates by kind of product and size, see `products`),
    ``has_bf16`` (whether bf16 products are faster than fp32), ``cpu`` and ``memory_bytes``.
    """
    return _describe_machine(_measure_rates(0))


def probe_again() -> tuple[dict[str, Any], float]:
    """Return what `probe` does, the faster of two measurements, and by how much they disagree.

    The first is `probe`'s, best made before a recording; the second is made now. Whatever else
    runs on a machine makes it slower, never faster. The disagreement is the median over all
    rates, as a share of the slower one.
    """
    first, second = _measure_rates(0), _measure_rates(1)
    return _describe_machine(_faster(first, second)), disagreement(first, second)


def disagreement(first: dict[str, Any], second: dict[str, Any]) -> float:
    """Return the median of how far two nested dictionaries of rates are apart.

    >>> disagreement({"a": 10.0, "b": 1.0, "c": [[9, 2.0]]}, {"a": 11.0, "b": 1.0, "c": [[9, 4.0]]})
    0.1
    """
    pairs = zip(_leaves(first), _leaves(second), strict=True)
    return round(median(max(pair) / min(pair) - 1 for pair in pairs), 4)


def cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _measure_rates(turn: int) -> dict[str, Any]:
    """Return the rates of the first (0) or second (1) measurement at torch's number of threads."""
    import torch

    return _rates(cores(), torch.get_num_threads(), turn)


@functools.cache
def _rates(usable: int, threads: int, turn: int) -> dict[str, Any]:  # noqa: ARG001 - the cache's key
    """Return what a process of its own measures with so many *threads*."""
    command = [sys.executable, "-m", MODULE, str(threads), str(os.getpid())]
    environment = plain_environment()
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=environment
        )
        rates: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        told = str(getattr(error, "stderr", None) or error).strip().splitlines()
        why = told[-1] if told else type(error).__name__
        raise RecordError(f"the machine's rates could not be measured: {why}") from error
    return rates


def _describe_machine(rates: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "cpu": cpu_name(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        **rates,
        "has_bf16": rates["bf16_gflops"] > rates["fp32_gflops"],
    }


def _faster(first: Any, second: Any) -> Any:
    """Return the larger of each number of two values of the same shape."""
    if isinstance(first, dict):
        return {name: _faster(first[name], second[name]) for name in first}
    if isinstance(first, list):
        return [_faster(one, other) for one, other in zip(first, second, strict=True)]
    return max(first, second)


def _leaves(rates: Any) -> Iterator[float]:
    """Yield the rates of nested dictionaries; a list is of (size, rate)."""
    if isinstance(rates, dict):
        for value in rates.values():
            yield from _leaves(value)
    elif isinstance(rates, list):
        yield from (rate for _size, rate in rates)
    else:
        yield rates


def cpu_name() -> str:
    """Return what the processor is called."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - no path is built
            return next(
                line.split(":")[1].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
