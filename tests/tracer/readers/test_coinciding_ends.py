"""Clocks of ranks whose transfers cannot be told apart are aligned on what ends together."""

from __future__ import annotations

import numpy as np

from foretrace.tracer.readers.coinciding_ends import align_by_coincidence

MS = 1e6
FIRST = np.array([1.0, 3.0, 7.5, 8.0]) * MS
"""Sends of rank 0, in ns; rank 1 receives them."""
SECOND = np.array([2.0, 5.0, 9.25]) * MS
"""Sends of rank 1; rank 2 receives them."""
ENDS = [FIRST, np.sort(np.append(FIRST, SECOND)), SECOND]


def test_clocks_that_agree_are_kept() -> None:
    """Each transfer ends with one of another rank, whatever offsets wrong pairs suggested."""
    offsets, shares = align_by_coincidence(ENDS, np.array([0.0, 0.4 * MS, 0.0]))

    assert offsets.tolist() == [0, 0, 0]
    assert shares.tolist() == [1, 1, 1]


def test_clocks_are_found_rank_by_rank() -> None:
    """Rank 2 shares none with rank 0: its clock is told by rank 1's."""
    late = [ENDS[0], ENDS[1] + 40 * MS, ENDS[2] - 11 * MS]
    offsets, shares = align_by_coincidence(late, np.zeros(3))

    assert offsets.tolist() == [0, -40 * MS, 11 * MS]
    assert shares.tolist() == [1, 1, 1]


def test_a_rank_without_transfers_shares_none() -> None:
    """Its clock stays as it is."""
    offsets, shares = align_by_coincidence([*ENDS, np.empty(0)], np.zeros(4))

    assert (offsets[3], shares[3]) == (0, 0)
