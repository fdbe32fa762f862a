"""Tables below one another: categories keep their first place, codes follow."""

from __future__ import annotations

import pandas as pd

from foretrace.util.schema import stack


def test_categories_of_all_tables_are_joined() -> None:
    """The second table brings one category of its own, and a missing value."""
    one = pd.DataFrame({"kind": pd.Categorical(["b", "a"]), "size": [1, 2]})
    other = pd.DataFrame({"kind": pd.Categorical(["c", None, "a"]), "size": [3, 4, 5]})
    both = stack([one, other])

    assert both["kind"].astype(object).tolist()[:3] == ["b", "a", "c"]
    assert both["kind"].isna().tolist() == [False, False, False, True, False]
    assert both["kind"].cat.categories.tolist() == ["a", "b", "c"]
    assert both["size"].tolist() == [1, 2, 3, 4, 5]
