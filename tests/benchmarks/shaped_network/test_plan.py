"""The plan: what it has to hold, how it is cut down."""

from __future__ import annotations

import pytest

from benchmarks.shaped_network.plan import (
    HELD_OUT,
    MODELS,
    PLAN,
    Group,
    _sweeps,
    select_groups,
)
from benchmarks.shaped_network.visit import Effort, cells_of
from foretrace.errors import RecordError
from foretrace.tracer.lab.network.collective_sweep import SIZES


def _cells() -> list[tuple[str, str | None, int, int | None, object]]:
    return [
        (cell.scheme, cell.model, cell.ranks, cell.rate_mbit, cell.options.get("cap_mb"))
        for group in PLAN
        for setup in group.setups
        for cell in cells_of(group, setup)
    ]


@pytest.mark.parametrize("model", ["gpt", "conv", "mlp", "wide", *HELD_OUT])
def test_every_model_meets_every_link_and_bucket(model: str) -> None:
    """Five link speeds and three bucket sizes, on two ranks."""
    wanted = {
        ("ddp", model, 2, rate, cap) for rate in (100, 200, 300, 500, 1000) for cap in (1, 4, 25)
    }

    assert wanted <= set(_cells())


def test_no_cell_is_planned_twice() -> None:
    """A name stands for one file."""
    names = [c.name for group in PLAN for setup in group.setups for c in cells_of(group, setup)]

    assert len(names) == len(set(names))


def test_large_operations_are_left_out_on_slow_links() -> None:
    """16 MiB at 100 Mbit/s take 1.4 s on two ranks, which only repeats the formula."""
    rates = {setup.options["bytes"]: setup.rates for setup in _sweeps(("all_reduce",), 2)}

    assert list(rates) == list(SIZES)
    assert rates[16 << 20] == (200, 300, 500, 1000)
    assert rates[4096] == (100, 200, 300, 500, 1000)
    assert _sweeps(("all_reduce",), 4, (100,))[-1].options == {"bytes": 4 << 20}


def test_a_plan_is_cut_down_to_names() -> None:
    """Models and schemes both narrow it; sweeps stay unless models are named."""
    assert select_groups(None, None) == list(PLAN)
    assert {g.model for g in select_groups(["conv"], None)} == {"conv"}
    slow = select_groups(None, ["slow_rank"])
    assert [(g.model, {s.scheme for s in g.setups}) for g in slow] == [("gpt", {"slow_rank"})]
    assert select_groups(["conv"], ["send"]) == []


@pytest.mark.parametrize(
    ("models", "schemes", "text"),
    [
        (["alexnet"], None, "no model is called 'alexnet': choose from gpt, conv,"),
        (None, ["zero"], "no scheme is called 'zero': choose from ddp, all_reduce,"),
    ],
)
def test_unknown_names_are_refused(
    models: list[str] | None, schemes: list[str] | None, text: str
) -> None:
    """The text lists what there is."""
    with pytest.raises(RecordError, match=text):
        select_groups(models, schemes)


def test_planned_models_exist() -> None:
    """A plan names only what can be built."""
    pytest.importorskip("torch")
    from benchmarks.shaped_network.models import EXAMPLES

    assert set(MODELS) == set(EXAMPLES)


def test_a_job_is_named_after_its_copies() -> None:
    """Its recording was made with as many copies running as ranks compute."""
    assert Group("gpt", 2, (), servers=1).job == "gpt-x2"
    assert Group("gpt", 2, (), servers=1).all_racks == (0, 0, 0)
    assert Group(None, 4, ()).job is None


def test_trainings_are_visited_twice() -> None:
    """Up and down the link speeds; collectives alone repeat themselves."""
    setups = {setup.scheme: setup for group in PLAN for setup in group.setups}

    assert Effort().rounds_of(setups["ddp"]) == 2
    assert Effort().rounds_of(setups["send"]) == 1
    assert Effort().rounds_of(setups["contention"]) == 1
