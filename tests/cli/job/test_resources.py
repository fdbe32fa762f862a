"""``foretrace job resources``: a TOML file in, a table and a picture out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from foretrace.cli import app as cli

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
[job]
samples = 1000
batch_size = 10
dataset_gb = 0.1
compute_ms = 20.0
prepare_ms = [29.0, 31.0]
hand_over_ms = 2.0

[machine]
cores = 2
disk_mbps = 25

[grid]
cores = [1, 2]
cache = [0.0, 0.5, 1.0]
"""
PRICE = "[price]\ncore = 1.0\nmemory_gb = 1000.0\ncurrency = 'EUR'\n"


def written(folder: Path, text: str) -> str:
    """Write *text* to a file and return its path."""
    path = folder / "resources.toml"
    path.write_text(text, "utf-8")
    return str(path)


def test_the_cheapest_point_and_every_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cores by cache, with the page cache and Synergy's form beside."""
    path = written(tmp_path, FILE + PRICE)

    assert cli.run(["job", "resources", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = found["tables"][0]["rows"]

    assert found["title"] == (
        "Cheapest within 5 % of the best: 2 cores, 2 loader workers, 50% of the data cached"
    )
    assert found["answers"]["throughput"]["value"] == pytest.approx(10 / 0.027)
    assert found["answers"]["cost of an epoch"]["unit"] == "EUR"
    assert [(row["cores"], row["cached"]) for row in rows[:3]] == [
        (1, "0%"),
        (1, "50%"),
        (1, "100%"),
    ]
    assert rows[4]["page cache"] < rows[4]["fixed cache"]


def test_without_prices_the_text_says_what_cheap_means(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewest cores, then the smallest cache."""
    assert cli.run(["job", "resources", written(tmp_path, FILE), "--within", "0"]) == 0
    printed = capsys.readouterr().out

    assert "fewest cores" in printed
    assert "per hour" not in printed


@pytest.mark.parametrize("name", ["speed.html", "speed.png"])
def test_it_is_drawn(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a page or as a picture."""
    pytest.importorskip("matplotlib", reason="the optional extra plot is not installed")
    text = FILE.replace("cache =", "workers = [0, 1]\ncache =")
    plot = tmp_path / name

    assert cli.run(["job", "resources", written(tmp_path, text), "--plot", str(plot)]) == 0
    assert f"wrote {plot}" in capsys.readouterr().err
    assert plot.stat().st_size > 5000


BAD = [
    ("samples = 1000", "samples = 0", "$.job.samples"),
    ("compute_ms = 20.0", "compute_ms = nan", "compute_ms"),
    ("compute_ms = 20.0", "compute_ms = inf", "$.job.compute_ms"),
    ("compute_ms = 20.0", "", "compute_ms is not known"),
    ("compute_ms = 20.0", "compute = 20.0", "unknown field `compute`"),
    ("cache = [0.0, 0.5, 1.0]", "cache = [1.5]", "$.grid.cache[0]"),
    ("cache = [0.0, 0.5, 1.0]", "", "missing required field `cache`"),
    ("disk_mbps = 25", "disk_mbps = 0", "$.machine.disk_mbps"),
    ("disk_mbps = 25", "disk_mbps = 25\neffective_cores = 3.0", "effective_cores = 3 of 2 cores"),
    ("[grid]", "[grid", "resources.toml"),
    ("[grid]", "[price]\ncore = 0\nmemory_gb = 1\n[grid]", "$.price.core"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), BAD)
def test_a_bad_file_is_one_sentence(
    old: str, new: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the key."""
    path = written(tmp_path, FILE.replace(old, new))

    assert cli.run(["job", "resources", path]) == 1
    error = capsys.readouterr().err

    assert error.count("\n") == 1
    assert sentence in error


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, too."""
    assert cli.run(["job", "resources", str(tmp_path / "none.toml")]) == 1
    assert "none.toml: cannot be read" in capsys.readouterr().err
