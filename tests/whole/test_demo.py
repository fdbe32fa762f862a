"""``make demo``, shortened: the same path with fewer steps."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def demo(name: str) -> Any:
    """Load the script of the examples as a module."""
    spec = spec_from_file_location(name, ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_demo_predicts_and_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints both what-ifs with both null models, and leaves a recording and a timeline."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = demo("demo_under_test")
    for name, value in (("ROUNDS", 2), ("SETTLE", 1), ("STEPS", 2)):
        monkeypatch.setattr(module, name, value)
    module.main()

    printed = capsys.readouterr().out
    assert printed.count("error of the prediction") == 2
    assert printed.count("nothing changes") == printed.count("published constants") == 2
    events = json.loads((tmp_path / "demo-out" / "timeline.json").read_text("utf-8"))["traceEvents"]
    assert {e["pid"] for e in events} == {1, 2}
    assert (tmp_path / "demo-out" / "small_cnn.parquet").stat().st_size > 0
