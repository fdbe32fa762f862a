"""Scenarios: literals only, every mistake named, applied in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TransformError
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.scenario import (
    apply,
    as_scenario,
    describe,
    describe_scenario,
    load_scenario,
    names,
    parse_scenario,
)
from tests.support.jobs.simple import gpu_job

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.graph.model import Graph


def test_text_becomes_what_ifs() -> None:
    """A name alone, and a name with parameters, come back as they were written."""
    scenario = parse_scenario(["amp", 'faster_kernels(pattern="gemm", speedup=2)'])

    assert names(scenario) == ("amp", "faster_kernels")
    assert describe_scenario(scenario) == ("amp", "faster_kernels(pattern='gemm', speedup=2)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ampp", "unknown what-if 'ampp'; did you mean amp"),
        ("amp(", "cannot read the what-if 'amp\\('"),
        ("", "cannot read the what-if ''"),
        ("amp(dtype='bf16')()", "cannot read the what-if"),
        ("(" * 300 + "amp", "cannot read the what-if"),
        ("1 + 1", "cannot read the what-if"),
        ("batch_size(64)", "batch_size: name each parameter"),
        ("batch_size(**x)", "batch_size: name each parameter"),
        ("batch_size(n=__import__('os'))", "batch_size: n must be a literal"),
        ("batch_size(m=64)", "batch_size has no parameter 'm'; it has n, recorded"),
        ("batch_size(n='64')", "batch_size: n='64' has the wrong type; give int"),
        ("batch_size(n=True)", "batch_size: n=True has the wrong type"),
        ("batch_size", r"batch_size needs the parameter n \(int\)"),
        (
            "pipeline",
            r"pipeline needs the parameters stages \(int\) and micro_batches \(int\), as in ",
        ),
        ("pipeline", r"as in pipeline\(stages=2, micro_batches="),
        ("ddp", r'parameter workers \(int\), as in ddp\(workers=2, network="1Gbps"\)'),
        (
            "pipeline(stages=2, micro_batches=2, cuts='1')",
            r"cuts='1' has the wrong type; give list\[str\] | None",
        ),
        ("pipeline(stages=2, micro_batches=2, cuts=[1])", r"cuts=\[1\] has the wrong type"),
        ("remove_stragglers(ranks=[1])", "it has except_ranks, except_pattern$"),
        ("faster_host(speedup=2, speedup=3)", "faster_host: speedup is given twice"),
        ("faster_kernels(speedup=[2])", "has the wrong type; give float"),
    ],
)
def test_a_mistake_is_named(text: str, message: str) -> None:
    """One line says what is wrong and what is right; nothing is evaluated."""
    with pytest.raises(TransformError, match=message):
        parse_scenario([text])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("faster_kernels(speedup=0)", "speedup=0 is out of range; give a number above 0"),
        ("faster_kernels(speedup=1e999)", "speedup=inf is out of range"),
        ("batch_size(n=0)", "n=0 is out of range; give a whole number from 1 on"),
        ("gradient_accumulation(k=0)", "k=0 is out of range"),
        ("dataloader(workers=-1)", "workers=-1 is out of range; give a whole number from 0 on"),
        ("dataloader(workers=1, prefetch=0)", "prefetch=0 is out of range"),
        ("amp(dtype='fp64')", "dtype='fp64' is unknown; choose one of bf16, fp16"),
        ("amp(attention='flash')", "attention='flash' is unknown.*did you mean flash"),
        ("fused_optimizer(kind='fast')", "kind='fast' is unknown; choose one of fused, foreach"),
    ],
)
def test_a_value_out_of_range_names_the_range(text: str, message: str) -> None:
    """Values are checked when the what-if meets the graph."""
    with pytest.raises(TransformError, match=message):
        apply(gpu_job(), parse_scenario([text]))


def test_a_value_may_be_none_where_that_is_declared() -> None:
    """``recorded: int | None`` takes None."""
    assert len(parse_scenario(["batch_size(n=64, recorded=None)"])) == 1


def test_a_toml_file_is_a_scenario(tmp_path: Path) -> None:
    """One table per what-if; the file's name works where a what-if's does."""
    path = tmp_path / "plan.toml"
    path.write_text(
        '[[transform]]\nname = "amp"\ndtype = "fp16"\n\n[[transform]]\nname="remove_sync"\n'
    )

    assert describe_scenario(parse_scenario([str(path)])) == ("amp(dtype='fp16')", "remove_sync")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[[transform]\n", "scenario file .*plan.toml"),
        ("x = 1\n", "'x' is unknown; write one \\[\\[transform\\]\\] table"),
        ("", "write one \\[\\[transform\\]\\] table"),
        ("transform = []\n", "write one \\[\\[transform\\]\\] table"),
        ('[[transforms]]\nname = "amp"\n', "'transforms' is unknown; did you mean transform"),
        ("[[transform]]\nname = 3\n", "write one \\[\\[transform\\]\\] table"),
        ('[[transform]]\ndtype = "bf16"\n', "write one \\[\\[transform\\]\\] table"),
        ('[[transform]]\nname = "amps"\n', r"plan\.toml: unknown what-if 'amps'"),
    ],
)
def test_a_wrong_file_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    """Syntax, shape and names are all reported as what-if errors."""
    path = tmp_path / "plan.toml"
    path.write_text(content)

    with pytest.raises(TransformError, match=message):
        load_scenario(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """The message names the file."""
    with pytest.raises(TransformError, match=r"scenario file .*none\.toml"):
        load_scenario(tmp_path / "none.toml")


def test_changes_apply_in_order_and_functions_are_welcome() -> None:
    """A plain function works as a what-if and is called custom."""
    seen: list[int] = []

    def count(graph: Graph) -> Graph:
        seen.append(len(graph.tasks))
        return graph

    apply(gpu_job(steps=1), [*parse_scenario(["remove_sync"]), count])

    assert seen == [18]
    assert names(as_scenario(count)) == ("custom",)
    assert describe_scenario(as_scenario(count)) == ("custom",)


def test_notes_are_kept_once() -> None:
    """The same assumption made twice is one note."""
    graph = add_note(add_note(gpu_job(), "assumed"), "assumed", "more")

    assert graph.notes == ("assumed", "more")


def test_the_list_describes_every_what_if() -> None:
    """Name, effect and parameters, ready for the command line."""
    described = {entry["name"]: entry for entry in describe()}

    assert set(described) == set(TRANSFORMS)
    assert described["dataloader"]["parameters"] == [
        {"name": "workers", "type": "int", "required": True, "default": None},
        {"name": "prefetch", "type": "int", "required": False, "default": 2},
        {"name": "recorded_workers", "type": "int | None", "required": False, "default": None},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("faster_kernels(pattern='a{1001}',speedup=2)", "is no regular expression"),
        (f"faster_kernels(speedup={10**400})", "speedup is out of range"),
        (
            "gradient_accumulation(k=10000000)",
            "10000000 repetitions make .* tasks, more than 10,000,000",
        ),
    ],
)
def test_absurd_numbers_are_refused(text: str, message: str) -> None:
    """At once, and in one line."""
    with pytest.raises(TransformError, match=message):
        apply(gpu_job(), parse_scenario([text]))


def test_an_own_what_if_is_shown_as_its_docstring_writes_it(tmp_path: Path) -> None:
    """Where that has no call that can be read, with gaps to fill in; types may be anything."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def bare(graph, *, by, at: complex = 1j):\n    return graph\n\n"
        'def told(graph, *, by: int):\n    """Do.\n\n    >>> told(g, by=[(1, 2)])\n'
        '    >>> told(g, by=3)\n    """\n',
        "utf-8",
    )
    assert parse_scenario([f"{mine}:bare(by=[1], at=None)"])

    with pytest.raises(TransformError, match=r"parameter by \(Any\), as in .*=\.\.\.\)"):
        parse_scenario([f"{mine}:bare"])
    with pytest.raises(TransformError, match=r"as in .*told\(by=3\)$"):
        parse_scenario([f"{mine}:told"])


def test_the_registry_knows_every_what_if_by_its_name() -> None:
    """Names on the command line are the functions' own."""
    assert all(name == function.__name__ for name, function in TRANSFORMS.items())
