"""Try what the documentation's pages show, as a reader would, in a folder like a checkout."""

from __future__ import annotations

import ast
import contextlib
import difflib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from benchmarks.shaped_network.__main__ import make_parser
from foretrace.batch.config import read_study
from foretrace.cli import app as cli
from foretrace.cli import record_pairs as cli_pairs
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.docs.blocks import Item

LINKED = ("examples", "traces", "docs", "Makefile", "pyproject.toml")
OPTIONAL = ("torchvision", "transformers", "lightning", "ray")
"""Packages that pages may import, and that need not be installed."""
UNSTEADY = "the pace changes: steps took|measurements judges anything"
"""What is said of a job that was recorded beside other work; no fault of the page."""
READ_ONLY = ("text", "json", "yaml", "csv")
CAMPAIGNS = {"record-pairs": cli_pairs._parser, "benchmarks.shaped_network": make_parser}
"""What measures for many minutes: its options are read, and nothing is run."""


@dataclass
class Visit:
    """A reader on a page: the folder they are in, and what their Python session knows."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    written: set[str] = field(default_factory=set)
    """Files that the page wrote so far."""
    missing: set[str] = field(default_factory=set)
    """Files and names that would be there, had nothing been skipped."""


@contextlib.contextmanager
def visiting(folder: Path) -> Iterator[Visit]:
    """Make a checkout of *folder*, with the public recordings beside it, and go there."""
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in LINKED:
        (checkout / name).symlink_to(ROOT / name)
    (folder / "shared").symlink_to(ROOT.parent / "shared")
    known, path = set(sys.modules), [*sys.path]
    sys.path.insert(0, str(checkout))
    with contextlib.chdir(checkout):
        yield Visit(checkout)
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(checkout)):
            del sys.modules[name]


def attempt(item: Item, visit: Visit) -> None:
    """Try *item*; an exception says what is wrong with it, a skip why it cannot be tried here."""
    reason = _impossible(item, visit)
    if item.title:
        _write(item, visit)
    if reason:
        visit.missing |= _leaves(item)
        pytest.skip(reason)
    if item.language == "sh":
        _run(item, visit)
    elif item.language == "python" and not item.title:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # other people's, in a process that makes them errors
            exec(compile(item.text, str(item), "exec"), visit.names)  # noqa: S102 - our own pages
    else:
        _parse(item)


def _impossible(item: Item, visit: Visit) -> str | None:
    """Say what *item* needs and this machine lacks, if anything."""
    for name in re.findall(r"\.\./shared/[\w./*-]+", item.text):
        if not any(visit.folder.glob(name)):
            return f"the public recordings are not here: {name}"
    imported = re.findall(r"^\s*(?:from|import) (\w+)", item.text, re.MULTILINE)
    for name in (*imported, *re.findall(r'"(\w+):\w+"', item.text)):
        if name in OPTIONAL and not find_spec(name):
            return f"{name} is not installed"
    for name in sorted(visit.missing & _words(item)):
        return f"{name} is not here: what brings it was skipped"
    return None


def _words(item: Item) -> set[str]:
    return {word.strip(".") for word in re.findall(r"[\w./-]+", item.text)}


def _leaves(item: Item) -> set[str]:
    """Return the files and names that *item* would have brought."""
    files = re.findall(r"--out[ =]([\w./-]+)", item.text)
    if item.title:
        return {item.title}
    if item.language != "python":
        return set(files)
    files += re.findall(r'out="([\w./-]+)"', item.text)
    nodes = [*ast.walk(ast.parse(item.text))]
    assigned = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    imported = {n.asname or n.name for n in nodes if isinstance(n, ast.alias)}
    return {*files, *assigned, *imported}


def _write(item: Item, visit: Visit) -> None:
    """Write the file that *item* shows; what is in the checkout must be as shown."""
    path = visit.folder / item.title
    if path.exists() and item.title not in visit.written:
        content = path.read_text("utf-8")
        after_its_docstring = content.split('"""\n', 1)[-1].lstrip()
        assert item.text in {content, after_its_docstring}, f"{item.title} is not as shown"
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(item.text, "utf-8")
    visit.written.add(item.title)


def _parse(item: Item) -> None:
    """Read a block that is not run in its own language."""
    if item.language == "toml":
        tomllib.loads(item.text)
    elif item.language == "json":
        json.loads(item.text)
    elif item.language == "python":
        compile(item.text, str(item), "exec")
    else:
        assert item.language in READ_ONLY, f"nobody tries {item.language!r}: call it text"


def _run(item: Item, visit: Visit) -> None:
    """Run a command; what it prints is what is shown, if anything is."""
    words = shlex.split(item.text, comments=True)
    program = next(word for word in words if "=" not in word)
    if program == "make":
        assert set(words[1:]) <= targets(), "no such target"
    elif "pip" in words:
        assert extras_of(item.text) <= extras(), "no such extra"
    elif campaign := next((word for word in words if word in CAMPAIGNS), None):
        options = words[words.index(campaign) + 1 :]
        assert CAMPAIGNS[campaign]().parse_args(options).minutes > 0
    elif program == "foretrace" or "-m foretrace" in item.text:
        _run_foretrace(words[words.index("foretrace") + 1 :], item, visit)
    else:
        _compare(item, _run_in_shell(item.text))


def targets() -> set[str]:
    """Return what can be made."""
    rules = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([\w-]+):", rules, re.MULTILINE))


def extras() -> set[str]:
    """Return the optional parts that the package has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"])


def extras_of(text: str) -> set[str]:
    """Return the optional parts that *text* tells to install."""
    lists = re.findall(r"(?:foretrace|\.)\[([\w,-]+)\]", text)
    return {name for names in lists for name in names.split(",")}


def commands() -> dict[str, Any]:
    """Return the commands of ``foretrace`` by name."""
    return typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]


def _run_foretrace(arguments: list[str], item: Item, visit: Visit) -> None:
    """Run one command line of ours, or only read its options where it would take too long."""
    if re.search(r"[|;&<>*]", re.sub(r"'[^']*'|\"[^\"]*\"", "", item.text)):
        _compare(item, _run_in_shell(item.text))
    elif _takes_long(arguments, visit):
        commands()[arguments[0]].make_context(arguments[0], arguments[1:])
    else:
        printed, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            code = cli.run(arguments)
        if code and re.search(UNSTEADY, said.getvalue()):
            visit.missing |= _leaves(item)
            pytest.skip(f"this machine was not quiet: {said.getvalue()}")
        assert code == 0, said.getvalue()
        _compare(item, printed.getvalue())


def _takes_long(arguments: list[str], visit: Visit) -> bool:
    """Tell whether a command serves until it is stopped, needs a cluster, or measures changes."""
    if arguments[0] != "batch":
        return arguments[0] == "serve"
    study = next(word for word in arguments if word.endswith(".toml"))
    return "--backend" in arguments or any(
        entry.changes for entry in read_study(visit.folder / study).model
    )


def _run_in_shell(command: str) -> str:
    """Run *command* with this environment's programs before others; return what it printed."""
    done = subprocess.run(
        ["bash", "-ec", command],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def _compare(item: Item, printed: str) -> None:
    """Hold *printed* against what the page shows; ``GOLDEN=write`` corrects the page."""
    if item.output is None or printed == item.output:
        return
    if os.environ.get("GOLDEN") == "write":
        page = ROOT / item.page
        command = f"$ {item.text}\n"
        corrected = page.read_text("utf-8").replace(command + item.output, command + printed)
        page.write_text(corrected, "utf-8")
    else:
        shown, lines = item.output.splitlines(), printed.splitlines()
        difference = "\n".join(difflib.unified_diff(shown, lines, "shown", "printed", lineterm=""))
        raise AssertionError(f"{item}: prints something else\n{difference}")
