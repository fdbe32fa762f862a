"""The studies of this project and of its page on batches ask for what exists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from foretrace.batch.config import read_study
from foretrace.tracer.lab.zoo.models import BY_NAME as MODELS
from foretrace.tracer.lab.zoo.variants import BY_NAME as CHANGES
from tests.support.docs.blocks import items
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_the_studies_name_models_and_changes_that_exist(tmp_path: Path) -> None:
    """The page's, and that of the whole zoo, which has 14 models and 6 changes for each."""
    text = (ROOT / "docs" / "batch.md").read_text("utf-8")
    shown = [item for item in items(text, "batch.md") if item.title.endswith(".toml")]
    for item in shown:
        (tmp_path / item.title).write_text(item.text, "utf-8")
    page = [entry for item in shown for entry in read_study(tmp_path / item.title).model]
    zoo = read_study(ROOT / "traces" / "zoo.toml").model

    assert len(page) >= 2
    for entry in (*zoo, *page):
        assert {name for name in entry.names if ":" not in name} <= set(MODELS)
        assert set(entry.changes) <= set(CHANGES)
    assert len({name for entry in zoo for name in entry.names}) == 14
    for name in zoo[0].names:
        applying = [c for c in zoo[0].changes if CHANGES[c].applies_to(MODELS[name], cpu=True)]
        assert len(applying) == 6


def test_models_of_libraries_are_named_as_the_page_names_them() -> None:
    """``torchvision:NAME`` and ``transformers:TYPE``."""
    from foretrace.tracer.lab.zoo.named import LIBRARIES

    named = re.findall(r"`(\w+):\w+`", (ROOT / "docs" / "batch.md").read_text("utf-8"))

    assert set(named) == set(LIBRARIES)
