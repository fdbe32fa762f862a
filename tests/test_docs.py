"""Every command that the documentation shows is run, and generated pages are current."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from foretrace import cli, cli_pairs, reference
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


def test_the_pages_show_commands() -> None:
    """The search for commands finds some on every page that has them."""
    assert {entry.page for entry in COMMANDS} >= {"README.md", "traces/README.md"}


@pytest.mark.parametrize("entry", [e for e in COMMANDS if e.command.startswith("make")], ids=str)
def test_make_targets_exist(entry: Shown) -> None:
    """What the pages tell to make is a target."""
    target = words_of(entry.command)[1]

    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("entry", [e for e in COMMANDS if "record-pairs" in e.command], ids=str)
def test_options_of_record_pairs_exist(entry: Shown) -> None:
    """It runs for minutes, so only its options are tried here."""
    options = words_of(entry.command)[2:]

    assert cli_pairs._parser().parse_args(options).minutes > 0


@pytest.mark.parametrize(
    "entry",
    [e for e in COMMANDS if "record-pairs" not in e.command and "make " not in e.command],
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
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "shared").symlink_to(ROOT.parent / "shared")
    monkeypatch.chdir(checkout)

    assert cli.run(words[1:]) == 0

    printed = capsys.readouterr().out
    if entry.output and os.environ.get("GOLDEN") == "write":
        page = ROOT / entry.page
        page.write_text(page.read_text("utf-8").replace(entry.output, printed), "utf-8")
    elif entry.output:
        assert printed == entry.output


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
