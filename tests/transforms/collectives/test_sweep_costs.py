"""Collectives timed alone become a table of costs."""

from __future__ import annotations

from dataclasses import replace

from foretrace.tracer.lab.network.cells import Cell
from foretrace.transforms.collectives.sweep_costs import cost_table
from tests.support.measured.cells import cell, run


def test_a_table_says_which_links_it_is_of() -> None:
    """Unless the caller does."""
    sweep = Cell(**vars(replace(cell(run()), scheme="send", options={"bytes": 4096})))
    own, given = cost_table([sweep]), cost_table([sweep], device="A100", topology="")

    assert own.entries["topology"].tolist() == ["tcp, 1 in a machine, 0.3 Gbit/s"]
    assert given.entries[["device", "topology"]].to_numpy().tolist() == [["A100", ""]]
    assert own.entries["ns"].tolist() == [100.0]
