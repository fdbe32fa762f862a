"""The wheel and the sdist: what is in them, and that they work in an environment without more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.paths import ROOT
from tests.support.recordings.kineto import write_small_trace

if TYPE_CHECKING:
    from collections.abc import Iterable

pytest.importorskip("setuptools", minversion="77", reason="builds need setuptools 77")

BUILT = ("build", "dist", "*.egg-info", "__pycache__", ".*", "htmlcov", "demo-out")
"""What a checkout has and a clone has not."""
SDIST_MOST_BYTES = 5_000_000
LINKED = tuple(f"foretrace/{name}/" for name in ("tracer", "graph", "transforms", "replaying"))
BUILD = "import sys; from setuptools import build_meta as b; print(b.build_{}(sys.argv[1]))"
CHANGE = "faster_kernels(speedup=2)"


class Built(NamedTuple):
    """A copy of the checkout, its wheel and its sdist, and the wheel that the sdist gives."""

    source: Path
    wheel: Path
    sdist: Path
    wheel_of_sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build from a copy of the checkout: whatever an earlier build left would go into the next."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(*BUILT, "*.tar"))
    wheel, sdist = (built_from(source, what, folder / what) for what in ("wheel", "sdist"))
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return Built(source, wheel, sdist, built_from(unpacked, "wheel", folder / "again"))


def built_from(source: Path, what: str, out: Path) -> Path:
    """Build a "wheel" or an "sdist" from *source* into *out*, as pip does."""
    done = run([sys.executable, "-c", BUILD.format(what), str(out)], source)
    return out / done.splitlines()[-1]


def run(command: Iterable[str], folder: Path) -> str:
    """Run *command* in *folder*, without the checkout on the path; return what it prints."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command], cwd=folder, env=clean, capture_output=True, text=True, check=False
    )

    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of the package in *wheel*, each of which must be there once."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]

        assert len(names) == len(set(names))
        return {name: archive.read(name) for name in names}


def declared(root: Path) -> dict[str, bytes]:
    """Return the modules and the data files that pyproject.toml declares, as they lie in *root*."""
    setuptools = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    files = {}
    for package in setuptools["packages"]:
        folder = root.joinpath(*package.split("."))
        patterns = ["*.py", *setuptools["package-data"].get(package, ())]
        for pattern in patterns:
            for path in folder.glob(pattern):
                name = path.relative_to(folder).as_posix()
                files[f"{package.replace('.', '/')}/{name}"] = path.read_bytes()
    return files


def test_the_wheel_has_the_package_and_nothing_else(built: Built) -> None:
    """Every module once, though links lead to four folders twice; pages, devices and clusters."""
    files = contents(built.wheel)

    assert files == declared(built.source)
    for name in ("foretrace/page/page.js", "foretrace/transforms/costs/devices.toml"):
        assert name in files
    assert any(fnmatch(name, "foretrace/transforms/cluster/clusters/*.parquet") for name in files)


def test_the_sdist_gives_the_same_wheel(built: Built) -> None:
    """No link survives into it, and none is needed."""
    assert contents(built.wheel_of_sdist) == contents(built.wheel)


def test_the_sdist_has_tests_and_documentation(built: Built) -> None:
    """But no recordings, which are large, and no file twice."""
    with tarfile.open(built.sdist) as archive:
        members = archive.getmembers()
    names = [member.name.partition("/")[2] for member in members if member.isfile()]

    assert len(names) == len(set(names))
    assert not [member.name for member in members if member.issym() or member.islnk()]
    assert not [name for name in names if name.startswith(LINKED) or "__pycache__" in name]
    wanted = {"README.md", "CHANGELOG.md", "constraints.txt", "docs/batch.md", "tests/conftest.py"}
    assert wanted <= {*names}
    assert built.sdist.stat().st_size < SDIST_MOST_BYTES


def test_both_carry_the_licence(built: Built) -> None:
    """Its text beside the code, its name in the metadata."""
    licence = (ROOT / "LICENSE").read_bytes()
    with zipfile.ZipFile(built.wheel) as archive:
        (info,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        shipped = archive.read(f"{info}/licenses/LICENSE")
        metadata = archive.read(f"{info}/METADATA").decode()
    with tarfile.open(built.sdist) as archive:
        (name,) = (name for name in archive.getnames() if name.endswith("/LICENSE"))
        member = archive.extractfile(name)
        assert member is not None
        assert member.read() == shipped == licence

    assert "License-Expression: Apache-2.0\n" in metadata


@pytest.mark.slow
def test_both_work_in_an_empty_environment(built: Built, tmp_path: Path) -> None:
    """First the wheel, then the sdist in its place: nothing of the checkout is in reach."""
    trace = write_small_trace(tmp_path)
    python, foretrace = emptied(tmp_path / "venv")
    if not reaches_an_index(python, tmp_path):
        pytest.skip("pip finds no package index")
    limits = ["--constraint", str(ROOT / "constraints.txt")]
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run([*install, *limits, str(built.wheel)], tmp_path)
    opens(foretrace, trace)
    predicts(foretrace, trace)
    run([python, "-m", "pip", "uninstall", "-q", "-y", "foretrace"], tmp_path)
    run([*install, "--no-deps", str(built.sdist)], tmp_path)
    opens(foretrace, trace)
    where = run([python, "-c", "import foretrace; print(foretrace.__file__)"], tmp_path)

    assert Path(where.strip()).is_relative_to(tmp_path / "venv")


def emptied(folder: Path) -> tuple[str, str]:
    """Make an environment without packages; return its interpreter and its foretrace."""
    run([sys.executable, "-m", "venv", str(folder)], folder.parent)
    return str(folder / "bin" / "python"), str(folder / "bin" / "foretrace")


def reaches_an_index(python: str, folder: Path) -> bool:
    """Tell whether pip can get what every build needs."""
    command = [python, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), "setuptools"]
    return not subprocess.run(command, capture_output=True, check=False).returncode


def opens(foretrace: str, trace: Path) -> None:
    """Run what needs no more than the modules."""
    assert "whatif" in run([foretrace, "--help"], trace.parent)
    assert run([foretrace, "--version"], trace.parent).startswith("foretrace ")
    assert "amp" in run([foretrace, "transforms"], trace.parent)
    assert "replayed" in run([foretrace, "replay", str(trace)], trace.parent)


def predicts(foretrace: str, trace: Path) -> None:
    """Run what reads tables and pages that the package ships."""
    folder = trace.parent

    def printed(*arguments: str) -> str:
        return run([foretrace, *arguments], folder)

    assert "predicted" in printed("whatif", str(trace), CHANGE)
    assert "H100" in printed("whatif", str(trace), "device(name='H100')")
    printed("report", str(trace), CHANGE, "--out", "page.html")
    assert "</html>" in (folder / "page.html").read_text("utf-8")
    assert "Usage" in printed("job", "--help")
