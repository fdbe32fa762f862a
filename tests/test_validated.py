"""The table of validated errors, and how several errors combine."""

from __future__ import annotations

from foretrace.validated import combine, load_table, validated_error


def test_errors_of_several_transforms_add_in_quadrature() -> None:
    """3 % and 4 % make 5 %."""
    found = combine(["a", "b"], {"a": {"p90": 0.03}, "b": {"p90": 0.04}})

    assert (found.share, found.is_validated) == (0.05, True)


def test_a_transform_counts_once() -> None:
    """The same what-if twice has the same cause of error twice."""
    assert combine(["a", "a"], {"a": {"p90": 0.03}}).share == 0.03


def test_unknown_transforms_are_named() -> None:
    """Nothing is validated by silence."""
    found = combine(["a", "b"], {"a": {"p90": 0.03}})

    assert (found.missing, found.is_validated) == (("b",), False)


def test_the_shipped_table_has_both_kinds_of_hardware() -> None:
    """Every entry has a positive error and at least two pairs behind it."""
    table = load_table()

    assert set(table) == {"gpu", "cpu"}
    rows = [row for transforms in table.values() for row in transforms.values()]
    assert all(row["p90"] >= row["median"] >= 0 and row["pairs"] >= 2 for row in rows)


def test_a_scenario_of_nothing_known_is_unvalidated() -> None:
    """A plain function of the user has no pairs."""
    assert validated_error(["custom"], on_device=True).missing == ("custom",)
