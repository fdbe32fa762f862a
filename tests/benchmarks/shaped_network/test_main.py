"""The options of ``python -m benchmarks.shaped_network``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.shaped_network import __main__ as shaped_network

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_options_reach_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are split at commas; what is not said is left to the campaign."""
    calls: list[tuple[Any, ...]] = []

    def record(*names: Any, **options: Any) -> None:
        calls.append((*names, options))

    monkeypatch.setattr(shaped_network, "record_network", record)
    assert shaped_network.main([]) == 0
    arguments = ["--models", "gpt, conv", "--schemes", "ddp", "--minutes", "3", "--out", "there"]
    assert shaped_network.main(arguments) == 0
    assert calls == [
        (None, None, {"minutes": 20.0, "out": Path("network"), "groups": None}),
        (["gpt", "conv"], ["ddp"], {"minutes": 3.0, "out": Path("there"), "groups": None}),
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
    assert shaped_network.main(arguments) == code
    errors = capsys.readouterr().err
    assert errors.startswith(said)
    assert errors.count("\n") == 1
