"""The study file: what it may say, and one line for every mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.batch.config import ModelEntry, read_study, scenario_texts
from foretrace.errors import TransformError

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, text: str) -> Path:
    """Write *text* as a study file."""
    path = folder / "study.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_study_is_read(tmp_path: Path) -> None:
    """Scenarios are texts or lists of texts; tables have defaults."""
    path = write(
        tmp_path, 'scenarios = ["amp", ["amp", "tf32"]]\n[[model]]\nnames = ["gnn"]\nminutes = 2\n'
    )
    study = read_study(path)

    assert study.scenarios == ["amp", ["amp", "tf32"]]
    assert study.model == [ModelEntry(["gnn"], minutes=2.0)]
    assert study.trace == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scenarios = [", "Invalid"),
        ("scenarios = [1]", r"Expected `str \| array`, got `int`"),
        ('[[traces]]\npath = "a"', "unknown field `traces`"),
        ('[[model]]\nnames = ["gnn"]\ndevice = "tpu"', "Invalid enum value 'tpu'"),
        ('scenarios = ["amp"]', r"name a \[\[trace\]\]"),
        ('[[trace]]\npath = "a"', "scenarios is empty"),
        ('[[model]]\nnames = ["gnn"]', "scenarios is empty"),
        ('scenarios = [[]]\n[[trace]]\npath = "a"', "empty list"),
        ('[[pair]]\nbefore = "a"\nscenario = "amp"', "pair of a: give either after or after_ms"),
        ('[[pair]]\nbefore = "a"\nscenario = "amp"\nafter_ms = -1.0', "Expected `float` >= "),
        ('[[pair]]\nbefore = "a"\nscenario = "amp"\nafter_ms = nan', "Expected `float` >= "),
        ("a = " + "[" * 100_000, "nested too deeply"),
        (
            '[[pair]]\nbefore = "a"\nscenario = "amp"\nafter = "b"\nafter_ms = 1.0',
            "pair of a: give either after or after_ms",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    """The file is named, and what is wrong in it."""
    path = write(tmp_path, text)
    with pytest.raises(TransformError, match=said) as error:
        read_study(path)

    assert str(error.value).startswith(f"study file {path}: ")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """As the system says it."""
    with pytest.raises(TransformError, match=r"nothing\.toml: cannot be read"):
        read_study(tmp_path / "nothing.toml")


def test_scenarios_have_one_spelling() -> None:
    """However they are typed, the key of an item is the same."""
    assert scenario_texts(["amp( dtype = 'bf16')", "tf32"]) == ("amp(dtype='bf16')", "tf32")
    with pytest.raises(TransformError, match="unknown what-if 'apm'"):
        scenario_texts("apm")
