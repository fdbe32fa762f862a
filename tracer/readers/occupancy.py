"""How many blocks of a kernel one multiprocessor can hold at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

WARP = 32
REGISTER_UNIT = 256
"""Registers are handed to a warp in units of this many (NVIDIA, since compute capability 3)."""
MAX_BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (12, 0): 24}
"""Blocks a multiprocessor can hold (CUDA C++ Programming Guide, technical specifications)."""
USUAL_MAX_BLOCKS = 32
RESERVED_SHARED_BYTES = 1024
"""Shared memory that the runtime takes per block from compute capability 8 on."""


@dataclass(frozen=True)
class Limits:
    """What one NVIDIA multiprocessor offers."""

    warps: int
    registers: int
    shared_bytes: int
    capability: tuple[int, int]

    @property
    def blocks(self) -> int:
        """Resident blocks, whatever they need."""
        return MAX_BLOCKS.get(self.capability, USUAL_MAX_BLOCKS)


def resident_blocks(
    threads: np.ndarray, registers: np.ndarray, shared_bytes: np.ndarray, limits: Limits
) -> np.ndarray:
    """Return the resident blocks per multiprocessor; NaN where a need is unknown (negative).

    Examples
    --------
    A block of 256 threads with 64 registers each fits four times into 65,536 registers.

    >>> a100 = Limits(warps=64, registers=65536, shared_bytes=167936, capability=(8, 0))
    >>> one = np.array([1])
    >>> float(resident_blocks(256 * one, 64 * one, 0 * one, a100)[0])
    4.0
    """
    is_complete = (threads > 0) & (registers >= 0) & (shared_bytes >= 0)
    warps = np.maximum(-(-threads // WARP), 1)
    per_warp = np.maximum(-(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT, REGISTER_UNIT)
    reserved = RESERVED_SHARED_BYTES if limits.capability >= (8, 0) else 0
    shared = np.maximum(shared_bytes + reserved, 1)
    fits = np.minimum.reduce(
        [
            limits.warps // warps,
            limits.registers // per_warp // warps,
            limits.shared_bytes // shared,
            np.full(len(threads), limits.blocks),
        ]
    )
    return np.where(is_complete, np.maximum(fits, 1).astype(float), np.nan)


def add_resident_blocks(values: dict[str, Any], limits: Mapping[int, Limits]) -> None:
    """Replace the columns ``registers`` and ``shared_bytes`` by ``blocks_per_sm``.

    A device whose limits are not known, AMD's among them, leaves NaN.
    """
    registers, shared = values.pop("registers"), values.pop("shared_bytes")
    resident = np.full(len(registers), np.nan)
    for device, limit in limits.items():
        if min(limit.warps, limit.registers, limit.shared_bytes) > 0:
            rows = np.flatnonzero((values["device"] == device) & (registers >= 0))
            threads = values["block_threads"][rows].astype(np.int64)
            resident[rows] = resident_blocks(threads, registers[rows], shared[rows], limit)
    values["blocks_per_sm"] = resident
