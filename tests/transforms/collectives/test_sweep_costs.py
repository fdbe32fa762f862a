"""Collectives timed alone become a table of costs."""

from __future__ import annotations

from foretrace.tracer.lab.network.collective_sweep import CollectiveCost
from foretrace.transforms.collectives.sweep_costs import cost_table


def test_a_table_says_which_links_it_is_of() -> None:
    """Unless the caller does."""
    sweep = CollectiveCost("send", 2, 4096, 300, 100, 0.0)
    own, given = cost_table([sweep]), cost_table([sweep], device="A100", topology="")

    assert own.entries["topology"].tolist() == ["tcp, 1 in a machine, 0.3 Gbit/s"]
    assert given.entries[["device", "topology"]].to_numpy().tolist() == [["A100", ""]]
    assert own.entries["ns"].tolist() == [100.0]
