"""Everything that the documentation shows works, and generated pages are current."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from benchmarks.accuracy.__main__ import quote
from docs import generate as reference
from tests.support.docs.blocks import PAGES, items
from tests.support.docs.runner import attempt, commands, extras, extras_of, targets, visiting
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_works(
    page: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """From top to bottom, in one folder that looks like a checkout."""
    with visiting(tmp_path) as visit:
        for item in items((ROOT / page).read_text("utf-8"), page):
            with subtests.test(str(item)):
                attempt(item, visit)


def test_the_pages_show_something() -> None:
    """The search for commands, Python and files finds those of the front page."""
    kinds = [
        (item.language, bool(item.title), item.output is not None)
        for item in items((ROOT / "README.md").read_text("utf-8"), "README.md")
    ]

    assert kinds.count(("sh", False, True)) >= 2
    assert kinds.count(("sh", False, False)) >= 10
    assert kinds.count(("python", False, False)) >= 1


def test_a_page_is_read_from_top_to_bottom() -> None:
    """Sessions, commands, files, Python and sketches, also inside a list."""
    page = (
        "```console\n$ one\nprinted\n$ two\n```\n"
        "- ```sh\n  not a block: no fence begins the line\n"
        "  ```sh\n  # a remark\n  three \\\n    more\n  four\n  ```\n"
        '```toml title="a.toml"\nx = 1\n```\n'
        "```\nforetrace five\nPYTHONPATH=. python3 -m foretrace six\na → b\n```\n"
    )

    assert [(i.line, i.language, i.text, i.title, i.output) for i in items(page, "p.md")] == [
        (2, "sh", "one", "", "printed\n"),
        (4, "sh", "two", "", None),
        (10, "sh", "three    more", "", None),
        (12, "sh", "four", "", None),
        (14, "toml", "x = 1\n", "a.toml", None),
        (18, "sh", "foretrace five", "", None),
        (19, "sh", "PYTHONPATH=. python3 -m foretrace six", "", None),
    ]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```sh\nforetrace replay absent.json\n```\n", "no such file"),
        ("```console\n$ foretrace --version\nforetrace 0\n```\n", "-foretrace 0"),
        ("```sh\nforetrace serve --prot 1 x.json\n```\n", "--prot"),
        ("```sh\nforetrace record-pairs --minutes none\n```\n", "2"),
        ("```sh\nmake believe\n```\n", "no such target"),
        ("```sh\npip install 'foretrace[absent]'\n```\n", "no such extra"),
        ("```sh\npython absent.py\n```\n", "absent.py"),
        ("```python\nimport absent\n```\n", "absent"),
        ('```python title="a.py"\ndef:\n```\n', "invalid syntax"),
        ('```python title="examples/own_loop.py"\nx = 1\n```\n', "is not as shown"),
        ("```toml\nx = \n```\n", "Invalid value"),
        ("```json\n{\n```\n", "Expecting"),
        ("```cobol\nMOVE\n```\n", "call it text"),
    ],
)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_a_broken_block_fails(block: str, message: str, tmp_path: Path) -> None:
    """Nothing that a page shows is passed over."""
    (item,) = items(block, "p.md")
    with (
        visiting(tmp_path) as visit,
        pytest.raises((Exception, SystemExit), match=re.escape(message)),
    ):
        attempt(item, visit)


def test_what_follows_from_a_skipped_block_is_skipped(tmp_path: Path) -> None:
    """A file that a skipped command would have written is not asked for."""
    page = (
        "```sh\nforetrace import ../shared/absent.json --out here.parquet\n"
        "foretrace replay here.parquet\n```\n"
        "```python\ntrace = '../shared/absent.json'\n```\n"
        "```python\nprint(trace)\n```\n"
    )
    reasons = []
    with visiting(tmp_path) as visit:
        for item in items(page, "p.md"):
            with pytest.raises(pytest.skip.Exception) as skipped:
                attempt(item, visit)
            reasons.append(skipped.value.msg)

    assert reasons == [
        "the public recordings are not here: ../shared/absent.json",
        "here.parquet is not here: what brings it was skipped",
        "the public recordings are not here: ../shared/absent.json",
        "trace is not here: what brings it was skipped",
    ]


def test_a_pattern_of_files_is_looked_for(tmp_path: Path) -> None:
    """As the shell would: what matches nothing is not here, and the shell itself expands it."""
    (absent,) = items("```sh\ncat ../shared/absent*.json\n```\n", "p.md")
    (present,) = items("```console\n$ foretrace --version *.md | wc -l\n1\n```\n", "p.md")
    with visiting(tmp_path) as visit:
        with pytest.raises(pytest.skip.Exception, match=r"absent\*\.json"):
            attempt(absent, visit)
        attempt(present, visit)


def test_a_page_s_python_is_one_session(tmp_path: Path) -> None:
    """Later blocks know the names of earlier ones, and import the files that the page wrote."""
    page = (
        '```python title="of_a_page.py"\nx = 1\n```\n```python\nfrom of_a_page import x\n```\n'
        "```python\ny = x + 1\n```\n"
    )
    with visiting(tmp_path) as visit:
        for item in items(page, "p.md"):
            attempt(item, visit)

    assert visit.names["y"] == 2


def test_the_example_of_an_own_loop_runs(tmp_path: Path) -> None:
    """It prints how long its steps took and leaves a trace file."""
    page = (
        "```console\n$ python examples/own_loop.py > said && ls loop.parquet\nloop.parquet\n```\n"
    )
    with visiting(tmp_path) as visit:
        for item in items(page, "p.md"):
            attempt(item, visit)
        said = (visit.folder / "said").read_text("utf-8")

    assert re.fullmatch(r"\d+ steps of \d+\.\d\d ms without the profiler\n", said)


def test_the_readme_quotes_the_accuracy_page() -> None:
    """The figures of the front page are those of the last study."""
    readme = (ROOT / "README.md").read_text("utf-8")

    assert quote(readme, (ROOT / "docs" / "accuracy.md").read_text("utf-8")) == readme


@pytest.mark.parametrize("name", reference.PAGES)
def test_generated_pages_are_current(name: str) -> None:
    """``make docs`` was run after the last change of the code."""
    assert (ROOT / "docs" / name).read_text("utf-8") == reference.PAGES[name]()


def test_pages_are_written_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m docs.generate FOLDER`` writes all of them."""
    monkeypatch.setattr("sys.argv", ["reference", str(tmp_path)])
    reference.main()

    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")}
    assert written == set(reference.PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_what_the_prose_names_exists(page: str) -> None:
    """Commands, targets of make and extras, also outside of blocks."""
    text = (ROOT / page).read_text("utf-8")

    assert set(re.findall(r"`foretrace ([a-z][\w-]*)", text)) <= set(commands())
    assert set(re.findall(r"`make (\w+)`", text)) <= targets()
    assert extras_of(text) <= extras()


@pytest.mark.parametrize("page", PAGES)
def test_links_of_the_page_lead_somewhere(page: str) -> None:
    """No page links to a file that does not exist."""
    for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text("utf-8")):
        assert ":" in target or (ROOT / page).parent.joinpath(target).exists(), (page, target)
