"""The rules of the paper that predictions are compared with."""

from __future__ import annotations

import pytest

from foretrace.analysis.null_models import apply_paper_constants
from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.transforms.scenario import apply, parse_scenario
from tests.support.jobs.simple import cpu_job, gpu_job


@pytest.mark.parametrize(
    ("text", "gpu", "cpu"),
    [
        ("amp", 33_333, 33_333),
        ("fused_optimizer", 100_000, 100_000),
        ("batch_size(n=64)", 200_000, 200_000),
        ("gradient_accumulation(k=2)", 100_000, 100_000),
        ("dataloader(workers=2)", 100_000, 100_000),
    ],
)
def test_the_paper_has_its_constants(text: str, gpu: int, cpu: int) -> None:
    """Work of the first product (a GEMM of 100 us) by the published rules."""
    for graph, work, name in ((gpu_job(), gpu, "s1688gemm"), (cpu_job(), cpu, "aten::addmm")):
        changed = check(apply(graph, apply_paper_constants(parse_scenario([text]))))
        product = changed.tasks[changed.tasks["name"].str.contains(name)]

        assert product["work_ns"].tolist()[0] == work


def test_the_paper_sums_what_is_fused() -> None:
    """Its fused update takes as long as the kernels it replaces."""
    gpu = apply(gpu_job(steps=1), apply_paper_constants(parse_scenario(["fused_optimizer"]))).tasks
    cpu = apply(cpu_job(steps=1), apply_paper_constants(parse_scenario(["fused_optimizer"]))).tasks

    assert gpu["work_ns"][gpu["name"] == "fused optimizer step (paper)"].tolist() == [200_000]
    assert cpu["work_ns"][cpu["name"] == "fused optimizer step (paper)"].tolist() == [200_000]


def test_the_paper_has_no_rule_for_everything() -> None:
    """A null model that does not exist is an error and not a number."""
    with pytest.raises(TransformError, match="the paper has no rule for"):
        apply_paper_constants([lambda graph: graph])
    with pytest.raises(TransformError, match="no task in the optimizer phase"):
        apply(
            literal([("a", "host", 0, 5, "forward")]),
            apply_paper_constants(parse_scenario(["fused_optimizer"])),
        )
    with pytest.raises(TransformError, match="give recorded"):
        apply(
            literal([("a", "host", 0, 5, "forward")]),
            apply_paper_constants(parse_scenario(["batch_size(n=2)"])),
        )
