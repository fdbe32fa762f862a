"""A token bucket: what a link lends after a pause."""

from __future__ import annotations

import numpy as np

from foretrace.transforms.distributed.common.link_credit import spend_credit


def test_a_link_lends_its_burst_after_each_pause() -> None:
    """Ready at 0, 1 and 30 with 9 of work and 4 of credit: the second follows at once."""
    left = spend_credit(np.array([9.0, 9.0, 9.0]), np.array([0.0, 1.0, 30.0]), 4.0)

    assert left.tolist() == [5.0, 9.0, 5.0]


def test_a_short_pause_lends_what_was_saved_in_it() -> None:
    """Two between the transfers give two, not four; a small transfer passes at once."""
    left = spend_credit(np.array([9.0, 9.0, 1.0]), np.array([0.0, 7.0, 40.0]), 4.0)

    assert left.tolist() == [5.0, 7.0, 0.0]
