"""The page on batches: its study is run as shown, its other study is one that can be read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from foretrace import cli
from foretrace.batch_study import read_study
from foretrace.tracer.variants import BY_NAME as CHANGES
from foretrace.tracer.zoo import BY_NAME as MODELS
from tests.small_trace import write_small_trace

pytest.importorskip("joblib", reason="the optional extra batch is not installed")

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "batch.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    """Return the blocks of the page that are marked as *kind*."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for marked, text in found if marked == kind]


def studies(folder: Path) -> list[Path]:
    """Write the studies of the page, each by the name in its first line."""
    found = []
    for block in blocks("toml"):
        found.append(folder / block.partition("\n")[0].removeprefix("# "))
        found[-1].write_text(block, "utf-8")
    return found


def test_the_commands_run_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder with the study and the recordings that it names."""
    monkeypatch.chdir(tmp_path)
    studies(tmp_path)
    (tmp_path / "recordings").mkdir()
    write_small_trace(tmp_path / "recordings")
    commands = [line for block in blocks("") for line in block.splitlines()]

    assert [shlex.split(command)[1] for command in commands] == ["batch", "compare", "compare"]
    for command in commands:
        assert cli.run([*shlex.split(command)[1:]]) == 0, capsys.readouterr()
    assert "Not worse than the reference" in capsys.readouterr().out


def test_options_for_clusters_exist() -> None:
    """They need a cluster, so only their names are tried here."""
    command = typer.main.get_command(cli.app)
    known = {name for p in command.commands["batch"].params for name in p.opts}  # type: ignore[attr-defined]

    for line in blocks("sh")[0].splitlines():
        assert {word for word in shlex.split(line) if word.startswith("--")} <= known


def test_the_studies_name_models_and_changes_that_exist(tmp_path: Path) -> None:
    """The page's, and that of the whole zoo, which has 14 models and 6 changes for each."""
    zoo = read_study(ROOT / "traces" / "zoo.toml").model
    page = read_study(studies(tmp_path)[1]).model

    for entry in (*zoo, *page):
        assert {name for name in entry.names if ":" not in name} <= set(MODELS)
        assert set(entry.changes) <= set(CHANGES)
    assert len({name for entry in zoo for name in entry.names}) == 14
    for name in zoo[0].names:
        applying = [c for c in zoo[0].changes if CHANGES[c].applies_to(MODELS[name], cpu=True)]
        assert len(applying) == 6


def test_links_of_the_page_lead_somewhere() -> None:
    """No link to a file that does not exist."""
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
