"""The whole job on the page, in a real browser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.analysis.prediction import predict
from foretrace.analysis.unchanged.baseline import replay_baseline, run_experiment
from foretrace.graph.literal import literal
from foretrace.job.whole import JobDescription, Rent, forecast_whole_job
from foretrace.page.data import outlook, view
from foretrace.page.html import write_page
from foretrace.report.forms import as_keys
from foretrace.transforms.scenario import parse_scenario
from tests.support.browser import chromium, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS_NS = (36_000_000, 36_200_000) * 10
ALONE = literal([("aten::mm", "host", 0, 36_000_000, "forward")], wrap=True)
GRAPH = replace(ALONE, meta=replace(ALONE.meta, unprofiled_step_ns=STEPS_NS))
SCENARIO = parse_scenario(["batch_size(n=2)"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start one browser for all tests of this file."""
    with chromium() as found:
        yield found


def address(folder: Path, scenario: Any, plan: JobDescription) -> str:
    """Write a report with a whole job and return where it is."""
    found = forecast_whole_job(GRAPH, predict(GRAPH, scenario), plan)
    data = {
        **view(run_experiment(GRAPH, scenario)),
        **outlook(replay_baseline(GRAPH)),
        "version": "0",
    }
    write_page({**data, "whole_job": as_keys(found)}, "text", folder / "report.html")
    return (folder / "report.html").as_uri()


def rows(page: Any) -> list[list[str]]:
    """Return the cells of the first table of the section."""
    found = page.locator("#job table").first.locator("tbody tr").all()
    return [[cell.strip() for cell in row.inner_text().split("\t")] for row in found]


def test_each_figure_has_its_interval_and_status(browser: Any, tmp_path: Path) -> None:
    """360,000 steps of 36.1 ms take 3.61 hours; at 2 USD an hour that is 7.22 USD."""
    plan = JobDescription(steps=360_000, rent=[Rent("gpu", 2.0)])

    with opened(browser, address(tmp_path, (), plan)) as page:
        steps, step, job, cost = rows(page)
        assert page.locator("#job .figure").all_inner_texts() == ["3.61\u00a0h", "7.22\u00a0USD"]
        assert page.locator("#job h2").inner_text() == "The whole job"
    assert steps == ["Steps", "360,000", "exact", "validated"]
    assert step[:2] == ["One step", "36.1\u00a0ms"]
    assert step[3] == "unvalidated"
    assert job[:2] == ["All steps", "3.61\u00a0h"]
    assert "\u2013" in job[2]
    assert cost[:2] == ["Cost", "7.22\u00a0USD"]


def test_what_is_refused_gives_its_reason(browser: Any, tmp_path: Path) -> None:
    """A job without samples has no answers; the page says why."""
    (tmp_path / "steps.csv").write_text("0.1\n")
    plan = JobDescription(steps=100, samples=str(tmp_path / "steps.csv"))

    with opened(
        browser, address(tmp_path, (), plan), viewport={"width": 375, "height": 700}
    ) as page:
        text = page.locator("#job").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert "No answer: the reason stands among the warnings." in text
    assert "not answered: 1 samples are too few" in text
