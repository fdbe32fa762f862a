"""The options of ``foretrace record-network``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.shaped_network import __main__ as cli_network_runs
from foretrace.cli import app as cli
from foretrace.tracer.lab.network import campaign as network_campaign

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_options_reach_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are split at commas; what is not said is left to the campaign."""
    asked: list[tuple[Any, ...]] = []

    def record(*names: Any, **options: Any) -> None:
        asked.append((*names, options))

    monkeypatch.setattr(network_campaign, "record_network", record)
    assert cli.run(["record-network"]) == 0
    arguments = ["--models", "gpt, conv", "--schemes", "ddp", "--minutes", "3", "--out", "there"]
    assert cli.run(["record-network", *arguments]) == 0
    assert asked == [
        (None, None, {"minutes": 20.0, "out": Path("network")}),
        (["gpt", "conv"], ["ddp"], {"minutes": 3.0, "out": Path("there")}),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--minutes", "0"], 2, "foretrace: --minutes is 0, expected more than 0\n"),
        (["--models", "alexnet"], 1, "foretrace: no model is called 'alexnet': choose from gpt"),
        (["--schemes", "zero"], 1, "foretrace: no scheme is called 'zero': choose from ddp"),
    ],
)
def test_refusals_are_one_line(
    arguments: Sequence[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage, and names that do not exist, before anything is set up."""
    assert cli_network_runs.main(arguments) == code
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert told.count("\n") == 1
