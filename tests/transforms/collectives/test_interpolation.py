"""What a table says beside its entries: literal rows, and a fit that finds what made them."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.transforms.cluster.cost_tables import CostEntry, make_table
from foretrace.transforms.collectives.estimate import Estimate, edge_share
from foretrace.transforms.collectives.interpolation import Case, Fit, TableCost, fit, look_up

MIB = 1 << 20


def form(ranks: int, size: float) -> Estimate:
    """Return a library that takes 1000 ns per rank and 1 ns per byte, off by half."""
    return Estimate(1000 * ranks, size, {}, 0.5, 0.5)


def asked(entries: list[tuple[int, int, float]], ranks: int, size: float) -> TableCost:
    """Look up an all_reduce in a table of (ranks, bytes, ns) where every group has a ring."""
    rows = [CostEntry("d", "switch", "all_reduce", n, s, ns, 0.01) for n, s, ns in entries]
    case = Case("d", "switch", "all_reduce", ranks, size)
    found = look_up(make_table(rows), case, form, lambda _: 1.0)
    assert found is not None
    return found


def test_between_sizes() -> None:
    """Along the straight line of the logarithms."""
    found = asked([(2, 100, 1000.0), (2, 400, 4000.0)], 2, 200)

    assert found.ns == pytest.approx(2000)
    assert found.spread == pytest.approx(0.01)


def test_outside_the_sizes_the_form_takes_over() -> None:
    """Scaled to the last entry; twice as slow stays twice as slow, with no drift to widen it."""
    entries = [(2, MIB, 2.0 * (2000 + MIB)), (2, 4 * MIB, 2.0 * (2000 + 4 * MIB))]
    found = asked(entries, 2, 8 * MIB)

    assert found.ns == pytest.approx(2 * (2000 + 8 * MIB))
    assert found.spread == pytest.approx(0.01 + 0.1)
    assert "extended from 4,194,304 bytes by the form" in found.note


def test_a_form_that_parts_from_the_table_widens_the_interval() -> None:
    """By as much per octave outside as it did inside."""
    entries = [(2, MIB, 1.0 * (2000 + MIB)), (2, 2 * MIB, 1.5 * (2000 + 2 * MIB))]
    found = asked(entries, 2, 8 * MIB)

    assert found.ns == pytest.approx(1.5 * (2000 + 8 * MIB))
    assert found.spread == pytest.approx(0.11 + 2 * 0.405, abs=0.01)


def test_below_a_single_entry() -> None:
    """There is nothing but the form's own interval; zero bytes are its latency."""
    found = asked([(2, MIB, 2.0 * (2000 + MIB))], 2, 0)

    assert found.ns == pytest.approx(4000)
    assert found.spread == pytest.approx(0.01 + 0.1 + 0.5)


def test_other_ranks_by_the_fitted_form() -> None:
    """Two and four ranks show base, hop, rate and copies; eight follow."""
    truth = Fit("all_reduce", 40_000, 5_000, slowness=1 / 300, copy_ns_per_byte=1 / 550)
    entries = [(n, s * MIB, truth.ns(n, s * MIB, 1.0)) for n in (2, 4) for s in (64, 128, 256, 512)]
    found = asked(entries, 8, 256 * MIB)

    assert found.ns == pytest.approx(truth.ns(8, 256 * MIB, 1.0), rel=1e-6)
    assert found.spread == pytest.approx(0.01, abs=1e-4)
    assert found.note == "table: extended from 2, 4 to 8 ranks"


def test_small_cases_are_fitted_to_their_neighbours() -> None:
    """Large entries, of another protocol, do not count for a small message."""
    small = [(n, s << 10, 1e4 * n) for n in (2, 4) for s in (16, 32, 64)]
    large = [(n, s * MIB, 1e7 * n) for n in (2, 4) for s in (64, 128, 256)]
    found = asked(small + large, 8, 32 << 10)

    assert found.ns == pytest.approx(8e4, rel=1e-3)


def test_one_other_number_of_ranks() -> None:
    """The form says by how much the ranks differ; both intervals add up."""
    found = asked([(2, MIB, 2.0 * (2000 + MIB))], 4, MIB)

    assert found.ns == pytest.approx(2 * (4000 + MIB))
    assert found.spread == pytest.approx(0.51)


def test_nothing_to_say() -> None:
    """No row of this kind; or none of a possible group."""
    table = make_table([CostEntry("d", "switch", "all_reduce", 2, MIB, 1.0)])
    case = Case("d", "switch", "broadcast", 2, MIB)

    assert look_up(table, case, form, lambda _: 1.0) is None
    assert look_up(table, Case("d", "switch", "all_reduce", 4, MIB), form, lambda _: None) is None


@settings(deadline=None, max_examples=50)
@given(
    st.floats(1e3, 1e5), st.floats(0, 1e4), st.floats(1e-3, 1.0), st.floats(0, 1e-2), st.booleans()
)
def test_a_fit_finds_what_made_the_rows(
    base: float,
    hop: float,
    slowness: float,
    copy: float,
    copies: bool,  # noqa: FBT001 - hypothesis fills it
) -> None:
    """Exactly, where the rows have no noise."""
    truth = Fit("all_reduce", base, hop, slowness, copy if copies else 0.0)
    rates = {2: 1.0, 3: 2.0, 4: 3.0}
    rows = [(n, s, truth.ns(n, s, rates[n])) for n in rates for s in (10**4, 10**6, 10**8)]
    found = fit(
        pd.DataFrame(rows, columns=["ranks", "bytes", "ns"]),
        rates,
        kind="all_reduce",
        copies=copies,
    )

    assert found.worst < 1e-6
    assert found.ns(8, 10**7, 6.0) == pytest.approx(truth.ns(8, 10**7, 6.0), rel=1e-3)


def test_terms_below_zero_are_left_out() -> None:
    """Rows that fall with the ranks have no hop, and small bases do not go below nothing."""
    rows = [
        (n, s, s * edge_share("all_gather", n) + 1e5 / n - 2e4)
        for n in (2, 4)
        for s in (10**6, 10**8)
    ]
    found = fit(
        pd.DataFrame(rows, columns=["ranks", "bytes", "ns"]),
        {2: 1.0, 4: 1.0},
        kind="all_gather",
        copies=False,
    )

    assert found.hop_ns == 0
    assert found.base_ns >= 0
    assert found.slowness == pytest.approx(1, abs=0.01)
