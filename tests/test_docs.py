"""Every command that the documentation shows is run, and generated pages are current."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pytest

from foretrace import cli, cli_network_runs, cli_pairs, reference
from foretrace.accuracy import quoted

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/how-it-works.md", "traces/README.md")
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Shown(NamedTuple):
    """A command in a page, and the output printed below it (empty: none is shown)."""

    page: str
    command: str
    output: str


def shown() -> list[Shown]:
    """Return every command of every page; ``$ command`` is followed by its output."""
    found = []
    for page in PAGES:
        for block in BLOCK.findall((ROOT / page).read_text("utf-8")):
            if block.startswith("$ "):
                command, _, output = block[2:].partition("\n")
                found.append(Shown(page, command, output))
            else:
                found += [
                    Shown(page, line, "")
                    for line in block.splitlines()
                    if re.match(r"(PYTHONPATH=\S+ python3 -m )?(foretrace|make) ", line)
                ]
    return found


def words_of(command: str) -> list[str]:
    """Return the words of *command*, beginning with the program."""
    words = shlex.split(command, comments=True)
    return words[words.index("foretrace") :] if "foretrace" in words else words


COMMANDS = shown()


def checkout(folder: Path) -> Path:
    """Return a new folder that looks like a checkout with the public recordings beside it."""
    made_here = folder / "checkout"
    made_here.mkdir()
    (made_here / "examples").symlink_to(ROOT / "examples")
    (folder / "shared").symlink_to(ROOT.parent / "shared")
    return made_here


@cache
def made(name: str) -> Path:
    """Return the file that an earlier command of a page writes, by running that command once."""
    command = next(e.command for e in COMMANDS if e.command.endswith(f"--out {name}"))
    folder = checkout(Path(mkdtemp(prefix="foretrace-docs-")))
    with contextlib.chdir(folder):
        assert cli.run(words_of(command)[1:]) == 0
    return folder / name


def test_the_pages_show_commands() -> None:
    """The search for commands finds some on every page that has them."""
    assert {entry.page for entry in COMMANDS} >= {"README.md", "traces/README.md"}


@pytest.mark.parametrize("entry", [e for e in COMMANDS if e.command.startswith("make")], ids=str)
def test_make_targets_exist(entry: Shown) -> None:
    """What the pages tell to make is a target."""
    target = words_of(entry.command)[1]

    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


CAMPAIGNS = {"record-pairs": cli_pairs._parser, "record-network": cli_network_runs._parser}
"""They run for many minutes, so only their options are tried here."""


def campaign(command: str) -> str | None:
    """Return which campaign *command* starts, if any."""
    return next((name for name in CAMPAIGNS if name in command), None)


@pytest.mark.parametrize("entry", [e for e in COMMANDS if campaign(e.command)], ids=str)
def test_options_of_campaigns_exist(entry: Shown) -> None:
    """The command line takes them as they are written."""
    options = words_of(entry.command)
    parser = CAMPAIGNS[campaign(entry.command) or ""]()

    assert parser.parse_args(options[options.index(parser.prog.split()[-1]) + 1 :]).minutes > 0


@pytest.mark.parametrize(
    "entry",
    [e for e in COMMANDS if not campaign(e.command) and "make " not in e.command],
    ids=str,
)
def test_commands_run_and_print_what_is_shown(
    entry: Shown,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A command works as written, in a folder that looks like a checkout."""
    words = words_of(entry.command)
    public = [word for word in words if word.startswith("../shared/")]
    for word in public:
        if not (ROOT / word).exists():
            pytest.skip(f"the public recordings are not here: {word}")
    monkeypatch.chdir(checkout(tmp_path))
    for name in words[1:]:
        if name.endswith(".parquet") and words[words.index(name) - 1] != "--out":
            shutil.copy(made(name), name)
    capsys.readouterr()

    assert cli.run(words[1:]) == 0

    printed = capsys.readouterr().out
    if entry.output and os.environ.get("GOLDEN") == "write":
        page = ROOT / entry.page
        page.write_text(page.read_text("utf-8").replace(entry.output, printed), "utf-8")
    elif entry.output:
        assert printed == entry.output


@pytest.mark.parametrize("name", ["own_job.py", "own_loop.py"])
def test_the_readme_shows_the_examples_as_they_are(name: str) -> None:
    """What is shown is what runs."""
    code = (ROOT / "examples" / name).read_text("utf-8").split('"""\n', 1)[1].strip()

    assert f"```python\n{code}\n```" in (ROOT / "README.md").read_text("utf-8")


def test_the_example_of_an_own_loop_runs(tmp_path: Path) -> None:
    """It prints how long its steps took and leaves a trace file."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "own_loop.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert re.fullmatch(r"\d+ steps of \d+\.\d\d ms without the profiler\n", done.stdout)
    assert (tmp_path / "loop.parquet").is_file()


def test_the_readme_s_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block of Python on the front page, beside the files that the commands wrote."""
    monkeypatch.chdir(tmp_path)
    for name in ("before.parquet", "after.parquet"):
        shutil.copy(made(name), name)
    blocks = re.findall(
        r"^```python\n(import foretrace\n.*?)^```$",
        (ROOT / "README.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )

    assert len(blocks) == 1
    exec(blocks[0], {})  # noqa: S102 - our own page


def test_the_readme_quotes_the_accuracy_page() -> None:
    """The figures of the front page are those of the last study."""
    readme = (ROOT / "README.md").read_text("utf-8")

    assert quoted(readme, (ROOT / "docs" / "accuracy.md").read_text("utf-8")) == readme


@pytest.mark.parametrize("name", reference.pages())
def test_generated_pages_are_current(name: str) -> None:
    """``make docs`` was run after the last change of the code."""
    assert (ROOT / "docs" / name).read_text("utf-8") == reference.pages()[name]


def test_pages_are_written_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m foretrace.reference FOLDER`` writes all of them."""
    monkeypatch.setattr("sys.argv", ["reference", str(tmp_path)])
    reference.main()

    assert {path.name for path in tmp_path.iterdir()} == set(reference.pages())


def test_links_between_pages_lead_somewhere() -> None:
    """No page links to a file that does not exist."""
    for page in (*PAGES, "docs/accuracy.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text("utf-8")):
            assert (ROOT / page).parent.joinpath(target).exists(), (page, target)
