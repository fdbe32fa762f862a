"""What-ifs of one's own: found by name, run with care, and put through the contract."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.identity import identity
from foretrace.errors import TransformError
from foretrace.testing import check_transform
from foretrace.transforms.edit.primitives import scale
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.scenario import apply, describe_scenario, load_scenario, parse_scenario
from tests.support.jobs.simple import gpu_job
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from foretrace.graph.model import Graph

PAGE = ROOT / "docs" / "writing-your-own.md"
DOC = """Do something.

    Assumes: nothing.
    Unknown: nothing.
    Source: none.

    >>> 1
    1
    """


def page() -> list[str]:
    """Return the Python blocks of the page: the what-if, a job, the test of the what-if."""
    return re.findall(
        r"^```python.*?\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the page's what-if to a file in an empty folder, and go there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(page()[0])
    (tmp_path / "test_mine.py").write_text(page()[2])
    return tmp_path


def test_the_example_of_the_page_passes_its_own_test(mine: Path) -> None:
    """Doctest and contract, as a user would run them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--doctest-modules", "-p", "no:cacheprovider"],
        cwd=mine,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "2 passed" in done.stdout, done.stdout


def test_a_function_of_a_file_is_a_what_if(mine: Path) -> None:
    """On the command line and in a scenario file; unvalidated, and its note is shown."""
    assert mine.is_dir()
    (mine / "plan.toml").write_text('[[transform]]\nname = "mine.py:fused_softmax"\nspeedup = 2\n')
    graph = gpu_job()
    name = graph.tasks["name"].cat.rename_categories(lambda n: n.replace("layer_norm", "softmax"))
    graph = replace(graph, tasks=graph.tasks.assign(name=name))

    by_text = parse_scenario(["mine.py:fused_softmax(speedup=2)"])
    by_file = load_scenario("plan.toml")

    predictions = [predict(graph, scenario) for scenario in (by_text, by_file)]
    assert describe_scenario(by_text) == ("mine.py:fused_softmax(speedup=2)",)
    assert describe_scenario(by_file) == describe_scenario(by_text)
    assert predictions[0] == predictions[1]
    assert predictions[0].status == "unvalidated"
    assert predictions[0].speedup > 1
    assert "fused_softmax: softmax and dropout run 2 times as fast" in predictions[0].assumptions


def test_a_function_of_a_module_is_a_what_if() -> None:
    """An installed one is named by its module."""
    scenario = parse_scenario(["foretrace.transforms.host.faster_host:faster_host(speedup=2)"])

    assert apply(gpu_job(), scenario).tasks.equals(
        apply(gpu_job(), parse_scenario(["faster_host(speedup=2)"])).tasks
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere.py:change", "nowhere.py is no file: give the path of the script"),
        ("nowhere.at.all:change", "importing nowhere.at.all failed: ModuleNotFoundError"),
        ("mine.py:other", "mine.py has no function 'other': check the name"),
        ("mine.py:", "cannot read the what-if 'mine.py:'"),
        (":change", "':change' names no what-if: write file.py:function"),
        ("mine.py:fused_softmax(2)", "mine.py:fused_softmax: name each parameter"),
        ("mine.py:fused_softmax(speed=2)", "has no parameter 'speed'; it has speedup"),
        ("mine.py:fused_softmax(speedup=open('x'))", "speedup must be a literal"),
        ("bad.py:fails", "bad.py:fails failed: ZeroDivisionError: division by zero"),
        ("mine.py:select", "must take the graph first and everything else by name|returned"),
        ("builtins:dict", "is no Python function: write def change"),
        ("bad.py:plain", "bad.py:plain must take the graph first and everything else by name"),
        ("bad.py:nothing", "bad.py:nothing returned NoneType: return the changed graph"),
        ("bad.py:typed(n='a')", "typed: n='a' has the wrong type; give int"),
        ("bad.py:typed", r"bad.py:typed needs the parameter n \(int\)"),
        ("bad.py:free(n=[1])", "bad.py:free returned list"),
        ("bad.py:leaves", r"bad.py:leaves ended the program: sys.exit\(0\)"),
        ("bad.py:base", "bad.py:base failed: BaseException: no"),
        ("json.py:fails", "json.py:fails failed: ZeroDivisionError"),
        ("ends.py:x", r"importing ends.py ended the program: sys.exit\(3\)"),
    ],
)
def test_a_mistake_in_a_users_own_is_named(mine: Path, text: str, message: str) -> None:
    """One line: what, where, what to do; whatever the file does."""
    (mine / "bad.py").write_text(
        "def plain(graph, n): return graph\n"
        "def nothing(graph): pass\n"
        "def fails(graph): 1 / 0\n"
        "def typed(graph, *, n: int): return graph\n"
        "def free(graph, *, n): return n\n"
        "def leaves(graph): raise SystemExit(0)\n"
        "def base(graph): raise BaseException('no')\n"
    )
    (mine / "json.py").write_text("def fails(graph): 1 / 0\n")
    (mine / "ends.py").write_text("import sys\nsys.exit(3)\n")

    with pytest.raises(TransformError, match=message):
        apply(gpu_job(), parse_scenario([text]))


def test_a_file_never_hides_a_module_of_python(mine: Path) -> None:
    """Named json.py, it is found, and the real one still works."""
    (mine / "json.py").write_text("def same(graph): return graph\n")

    parse_scenario(["json.py:same"])

    assert importlib.import_module("json").loads("[1]") == [1]


def test_a_what_if_that_edits_in_place_leaves_the_job_alone(mine: Path) -> None:
    """What was measured is compared with the change, not the change with itself."""
    (mine / "place.py").write_text(
        "def halved(graph):\n    graph.tasks['work_ns'] //= 2\n    return graph\n"
    )
    graph = gpu_job()

    before = identity(graph).replayed_ns
    prediction = predict(graph, parse_scenario(["place.py:halved"]))

    assert prediction.replayed_before_ns == before
    assert prediction.speedup > 1.2


def documented(change: Callable[..., Any], doc: str = DOC) -> Callable[..., Any]:
    """Return *change* with a docstring."""
    change.__doc__ = doc
    return change


def halved(graph: Graph) -> Graph:
    """Return *graph* with half the work."""
    return scale(graph, np.ones(len(graph.tasks), bool), 0.5, cost="user")


def in_place(graph: Graph) -> Graph:
    """Change the table that came in."""
    graph.tasks.loc[0, "work_ns"] = 1
    return add_note(graph, "x")


def by_chance(graph: Graph) -> Graph:
    """Give another graph each time."""
    SEEN.append(0)
    return add_note(scale(graph, np.ones(len(graph.tasks), bool), len(SEEN), cost="user"), "x")


SEEN: list[int] = [0]


def unlabelled(graph: Graph) -> Graph:
    """Edit a cost by hand."""
    return add_note(replace(graph, tasks=graph.tasks.assign(work_ns=7)), "x")


def broken(graph: Graph) -> Graph:
    """Point an edge at a task that is not there."""
    return add_note(replace(graph, edges=graph.edges.assign(dst=np.int32(10_000))), "x")


def with_position(graph: Graph, n: int = 1) -> Graph:
    """Take a parameter by position."""
    return add_note(graph, str(n))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (documented(in_place), "changed the graph it was given"),
        (documented(by_chance), "gave two results for one graph"),
        (documented(unlabelled), "is still labelled 'recorded'"),
        (documented(halved), "left no note on what it assumed"),
        (documented(lambda graph: graph.tasks), "returned DataFrame, no Graph"),
        (documented(broken), "dst is 10000, out of range"),
        (documented(lambda g: g), "call the first parameter graph"),
        (documented(with_position), "make n keyword-only"),
        (documented(lambda graph: graph, "Do it"), "begin the docstring with the effect"),
        (documented(lambda graph: graph, "Do it."), "the docstring lacks 'Assumes:'"),
        (
            documented(lambda graph: graph, "Do it.\n\n>>> 1\nSource: Unknown: Assumes:"),
            "order the docstring as Assumes:, Unknown:",
        ),
    ],
)
def test_a_broken_contract_is_named(change: Callable[..., Graph], message: str) -> None:
    """The text says what the what-if does wrong."""
    with pytest.raises((AssertionError, ValueError), match=message):
        check_transform(change, gpu_job())


def test_a_kept_contract_gives_the_result() -> None:
    """The changed graph comes back, ready for a test of what changed."""
    change = documented(lambda graph: add_note(halved(graph), "half of everything"))

    assert check_transform(change, gpu_job()).notes == ("half of everything",)
