"""Tables below one another, whose categories keep their first place; patterns in a column."""

from __future__ import annotations

import re

import pandas as pd

from foretrace.util.schema import matches, stack


def test_categories_of_all_tables_are_joined() -> None:
    """The second table brings one category of its own, and a missing value."""
    one = pd.DataFrame({"kind": pd.Categorical(["b", "a"]), "size": [1, 2]})
    other = pd.DataFrame({"kind": pd.Categorical(["c", None, "a"]), "size": [3, 4, 5]})
    both = stack([one, other])

    assert both["kind"].astype(object).tolist()[:3] == ["b", "a", "c"]
    assert both["kind"].isna().tolist() == [False, False, False, True, False]
    assert both["kind"].cat.categories.tolist() == ["a", "b", "c"]
    assert both["size"].tolist() == [1, 2, 3, 4, 5]


def test_missing_name_matches_nothing() -> None:
    """A pattern that every text matches leaves the missing one out."""
    column = pd.Series(["a", None, "b"], dtype="category")

    assert matches(column, re.compile("")).tolist() == [True, False, True]
