"""The card of a campaign."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.shaped_network.card import write_card
from benchmarks.shaped_network.cells import CellRun
from tests.support.measured.cells import cell, run

if TYPE_CHECKING:
    from pathlib import Path

JOBS = {
    "gpt-x2": {
        "facts": {
            "machine": {"cpu": "AMD EPYC", "fp32_gflops": 101.2, "copy_gbps": 27.6},
            "framework": "torch 2.13.0",
            "command": "python -m benchmarks.shaped_network",
            "batch_size": 3,
            "optimizer": {"name": "SGD"},
            "warnings": {},
        }
    }
}


def test_the_card_has_every_cell_and_why_it_proves_nothing(tmp_path: Path) -> None:
    """Trainings in one table, collectives in another, problems in words."""
    good, bad = cell(run(), run()), replace(cell(run(drops=2)), name="ddp gpt x2 500mbit")
    alone = replace(cell(CellRun(((2_000_000,),))), scheme="send", options={"bytes": 4096})
    path = write_card([good, bad, alone], JOBS, tmp_path / "network.md")

    text = path.read_text()
    assert "Recorded by `python -m benchmarks.shaped_network` with torch 2.13.0, Python 3" in text
    assert "AMD EPYC, one thread per rank: 101.2 GFLOP/s in fp32, 27.6 GB/s copied." in text
    assert "burst 131,072 bytes, congestion control\nreno as read back" in text
    assert "| ddp gpt x2 cap_mb=25 300mbit | 0.0 | 0.0 | 0.0 | 0.0 | 4 | yes |" in text
    assert "| ddp gpt x2 500mbit | 0.0 | 0.0 | 0.0 | 0.0 | 2 | no |" in text
    assert "| send | 2 | 4096 | 300 | 2.00 | 0.0 |" in text
    assert text.endswith("\nddp gpt x2 500mbit: 2 packets dropped.\n")

    card = json.loads(path.with_suffix(".json").read_text())
    assert [row["problems"] for row in card["cells"]] == [[], ["2 packets dropped"]]
    assert card["collectives"][0]["ns"] == 2_000_000
    assert card["jobs"]["gpt-x2"]["batch_size"] == 3


def test_collectives_alone_need_no_job(tmp_path: Path) -> None:
    """Then the machine is not known, and there is one table."""
    alone = replace(
        cell(CellRun(((2_000_000,),))), scheme="send", options={"bytes": 4096}, job=None
    )
    text = write_card([alone], {}, tmp_path / "network.md").read_text()

    assert "Recorded by" not in text
    assert text.count("| --- |") == 1
