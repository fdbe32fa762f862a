"""The package is importable the way users install it, and quick to open."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import foretrace
from foretrace import __main__ as door
from foretrace.transforms.registry import TRANSFORMS
from tests.support.paths import ROOT

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SETUPTOOLS = DECLARED["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]
"""Package → folder at the top of the repository."""


def python(code: str) -> str:
    """Run *code* in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert not done.returncode, done.stderr
    return done.stdout.strip()


def packages_below(folder: Path, name: str) -> list[str]:
    """Return the packages of the tree, links left out."""
    folders = [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]
    below = [each for each in folders if (each / "__init__.py").exists()]
    return [name, *(inner for b in below for inner in packages_below(b, f"{name}.{b.name}"))]


def test_every_package_in_the_tree_is_shipped() -> None:
    """A folder that is missing from the list works in the checkout and not in the wheel."""
    in_tree = packages_below(ROOT / "foretrace", "foretrace")
    for name, folder in FOLDERS.items():
        in_tree += packages_below(ROOT / folder, name)

    assert sorted(in_tree) == sorted(SETUPTOOLS["packages"])


def test_data_files_are_shipped() -> None:
    """Every data file beside the code stands in the package data."""
    shipped = SETUPTOOLS["package-data"]
    for name in SETUPTOOLS["packages"]:
        folder = ROOT / "foretrace" / Path(*name.split(".")[1:])
        data = {p.suffix for p in folder.iterdir() if p.is_file()} - {".py", ".pyc", ".typed"}

        assert data <= {Path(pattern).suffix for pattern in shipped.get(name, ())}, name


def test_the_licence_is_named_and_whole() -> None:
    """Apache-2.0, from its title to the end of its terms."""
    text = (ROOT / "LICENSE").read_text("utf-8")

    assert DECLARED["project"]["license"] == "Apache-2.0"
    assert DECLARED["project"]["license-files"] == ["LICENSE"]
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("name", FOLDERS)
def test_stages_are_links_of_the_package(name: str) -> None:
    """Type checkers find a stage through its link."""
    assert ROOT.joinpath(*name.split(".")).resolve() == ROOT / FOLDERS[name]


@pytest.mark.parametrize("stage", FOLDERS.values())
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
        "import sys, foretrace.cli.app; print([m for m in ('torch', 'pandas') if m in sys.modules])"
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


def test_no_module_has_the_name_of_a_public_function() -> None:
    """A function is never hidden by a module that somebody imported."""
    taken = [n for n in foretrace.__all__ if callable(getattr(foretrace, n)) and is_module(n)]

    assert taken == []


def is_module(name: str) -> bool:
    """Tell whether the package has a module *name*."""
    return find_spec(f"foretrace.{name}") is not None


def test_dir_shows_the_public_names_alone() -> None:
    """Whatever was imported on the way."""
    code = (
        "import foretrace, foretrace.replaying.engine.static, foretrace.analysis.prediction\n"
        "print(dir(foretrace) == sorted(foretrace.__all__))"
    )

    assert python(code) == "True"


def test_what_ifs_are_public_by_name() -> None:
    """A what-if is reached as foretrace.whatif.name, and keeps its docstring."""
    assert str(foretrace.whatif.faster_kernels(speedup=2)) == "faster_kernels(speedup=2)"
    assert foretrace.whatif.amp.__doc__ == TRANSFORMS["amp"].__doc__
    assert dir(foretrace.whatif) == sorted(TRANSFORMS)


def test_an_unknown_what_if_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="no what-if 'no_such'"):
        _ = foretrace.whatif.no_such


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
