"""The package is importable the way users install it, and quick to open."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import foretrace
from foretrace import __main__ as door

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("tracer", "graph", "transforms", "replay")


def python(code: str) -> str:
    """Run *code* in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_every_package_in_the_tree_is_shipped() -> None:
    """A folder that is missing from the list works in the checkout and not in the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"foretrace"}
    in_tree = ["foretrace", *sorted(f"foretrace.{name}" for name in folders)]

    assert in_tree == sorted(project["tool"]["setuptools"]["packages"])


def test_data_files_are_shipped() -> None:
    """Every data file beside the code stands in the package data."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    shipped = project["tool"]["setuptools"]["package-data"]
    tables = {p.name for p in (ROOT / "foretrace").glob("*.toml")}

    assert tables <= set(shipped["foretrace"])
    assert {p.name for p in (ROOT / "transforms").glob("*.toml")} <= set(
        shipped["foretrace.transforms"]
    )
    assert "clusters/*.toml" in shipped["foretrace.transforms"]


@pytest.mark.parametrize("stage", STAGES)
def test_stages_are_links_of_the_package(stage: str) -> None:
    """Type checkers find a stage through its link."""
    assert (ROOT / "foretrace" / stage).resolve() == ROOT / stage


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_is_imported_under_its_bare_name(stage: str) -> None:
    """Two copies of one module would have two copies of each class."""
    assert stage not in sys.modules


def test_importing_the_door_is_light() -> None:
    """Neither torch nor pandas is loaded before somebody needs it."""
    loaded = python(
        "import sys, foretrace; print([m for m in ('torch', 'pandas') if m in sys.modules])"
    )

    assert loaded == "[]"


def test_importing_the_commands_is_light() -> None:
    """--help needs none of what the commands run."""
    loaded = python(
        "import sys, foretrace.cli; print([m for m in ('torch', 'pandas') if m in sys.modules])"
    )

    assert loaded == "[]"


def test_analysing_needs_no_torch() -> None:
    """Every public name loads where torch cannot be imported."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import foretrace\n"
        "print(all(hasattr(foretrace, name) for name in foretrace.__all__))"
    )

    assert python(code) == "True"


def test_functions_keep_their_names_beside_modules() -> None:
    """Importing the module foretrace.predict does not hide the function foretrace.predict."""
    code = (
        "import foretrace, foretrace.predict, foretrace.replay.engines, foretrace.validate\n"
        "print(*map(callable, (foretrace.predict, foretrace.replay, foretrace.validate)))"
    )

    assert python(code) == "True True True"


def test_transforms_are_public_by_name() -> None:
    """A what-if is reached as foretrace.name."""
    assert foretrace.faster_kernels.__name__ == "faster_kernels"


@pytest.mark.parametrize("name", ["_private", "no_such_transform"])
def test_unknown_names_are_attribute_errors(name: str) -> None:
    """Nothing else is public."""
    with pytest.raises(AttributeError, match=name):
        getattr(foretrace, name)


def test_record_pairs_needs_neither_typer_nor_msgspec() -> None:
    """A recording machine may have torch and nothing of ours."""
    code = (
        "import sys, runpy\n"
        "absent = ('typer', 'rich', 'msgspec', 'numba', 'pyarrow', 'pandas')\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        "sys.argv = ['foretrace', 'record-pairs', '--help']\n"
        "runpy.run_module('foretrace', run_name='__main__')"
    )

    assert "--minutes" in python(code)


def test_without_typer_other_commands_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest of the command line names the missing package."""
    monkeypatch.setattr(sys, "argv", ["foretrace", "summary", "x"])
    monkeypatch.setattr(door, "find_spec", lambda _name: None)

    assert door.main() == 1
    assert "typer is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["record-pairs", "summary"])
def test_the_module_starts_the_command_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``python -m foretrace`` runs either door and returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["foretrace", command, "--minutes", "0"])

    assert door.main() == 2
    assert "--minutes" in capsys.readouterr().err
