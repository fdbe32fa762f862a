"""Collectives alone: gloo's forms, and what the preset "shaped-links" learnt from the archive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.accuracy.distributed.sweeps import SweepRow, contention, sweep_rows
from benchmarks.shaped_network.cell_archive import Cell, read_cells
from benchmarks.shaped_network.cells import collective_costs
from foretrace.transforms.cluster.presets import load_cluster
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.collectives.sweep_costs import cost_table
from tests.support.measured.cells import cell, run
from tests.support.paths import ROOT

ARCHIVE = ROOT / "traces" / "network-epyc-1.tar"
MIB = 1 << 20


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    """Return the cells of the committed archive."""
    return read_cells(ARCHIVE)


def large(cells: list[Cell], *kinds: str) -> list[SweepRow]:
    """Return the rows of *kinds* from 1 MiB on."""
    return [row for row in sweep_rows(cells) if row.bytes >= MIB and row.kind in kinds]


def test_forms_hold_from_one_mebibyte_on(cells: list[Cell]) -> None:
    """all_reduce, reduce_scatter and send, two and four ranks, racks as well: within 4 %."""
    rows = large(cells, "all_reduce", "reduce_scatter", "send")

    assert {row.racks for row in rows} == {False, True}
    assert max(abs(row.error) for row in rows) <= 0.04
    assert np.median([abs(row.error) for row in rows]) <= 0.002


def test_large_gathers_among_two_hold_each_other_up(cells: list[Cell]) -> None:
    """One rank is done in time, the other half a transfer later: as large ones do at most."""
    rows = [row for row in large(cells, "all_gather") if row.ranks == 2 and row.bytes == 16 * MIB]

    assert [row.error for row in rows] == pytest.approx([0.0] * len(rows), abs=0.02)


def test_the_preset_has_the_table_of_the_archive(cells: list[Cell]) -> None:
    """Entry by entry; and it is used."""
    table = load_cluster("shaped-links").table
    measured = cost_table(collective_costs(cells))

    assert table is not None
    assert table.entries.equals(measured.entries)
    links = load_cluster("shaped-links").with_network(gb_per_s=0.0375)
    cost = collective_cost(links, (0, 1), "all_gather", 16 * MIB)
    assert (cost.source, round(cost.ns / 1e6)) == ("table", 351)


def test_the_preset_has_the_contention_of_the_archive(cells: list[Cell]) -> None:
    """To three digits, rate by rate; unshaped links stand at what gloo reaches on them."""
    measured = contention(cells)
    written = {rate: shares for rate, *shares in load_cluster("shaped-links").host.contention}
    unshaped = written.pop(9.6)

    assert list(measured[None]) == pytest.approx(unshaped, abs=6e-4)
    assert sorted(written) == [rate / 1000 for rate in sorted(filter(None, measured))]
    for rate, shares in written.items():
        assert list(measured[round(1000 * rate)]) == pytest.approx(shares, abs=6e-4)


def test_speeds_are_means_and_none_is_above_one() -> None:
    """Over ranks and over what was computed."""
    one = replace(
        cell(run()), scheme="contention", facts={"compute_share": [0.7, 0.9], "stretch": 1.25}
    )
    other = replace(one, facts={"compute_share": [1.3, 1.3], "stretch": 0.5})
    found = contention([Cell(**vars(one)), Cell(**vars(other))])

    assert found == {300: (1.0, 1.0)}
    assert contention([Cell(**vars(one))]) == {300: (0.8, 0.8)}
