"""How fast would this training job run if …? Record once, then ask.

The public door: everything below is loaded on first use, so that importing the package is quick
and needs neither torch nor pandas until a trace is touched. `whatif` has the what-ifs by name,
`edit` and `testing` are for people who write their own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace import edit, testing, whatif
    from foretrace.analysis.difference.difference import Difference, diff
    from foretrace.analysis.prediction import Prediction, predict
    from foretrace.analysis.scenario_sweep import predict_many
    from foretrace.analysis.sensitivity import sensitivity
    from foretrace.analysis.validation import Validation, compare, validate
    from foretrace.errors import (
        ForetraceError,
        GraphError,
        RecordError,
        RefusedError,
        TraceError,
        TransformError,
    )
    from foretrace.export.chrome import export_timeline
    from foretrace.graph.build import build
    from foretrace.graph.model import Graph
    from foretrace.graph.views import to_frame, to_networkx
    from foretrace.replaying.replay import replay
    from foretrace.replaying.timeline import Timeline
    from foretrace.report.plot import figure
    from foretrace.tracer.job import Job
    from foretrace.tracer.readers.load import load, save
    from foretrace.tracer.recording.callbacks import lightning_callback, trainer_callback
    from foretrace.tracer.recording.record import Session, record, recording
    from foretrace.tracer.recording.recorder import schedule
    from foretrace.tracer.trace import Trace
    from foretrace.transforms.cluster.model import Cluster
    from foretrace.transforms.cluster.presets import ethernet, load_cluster
    from foretrace.transforms.collectives.cost import Cost, collective_cost
    from foretrace.transforms.measured.calibration import (
        Calibration,
        calibration_path,
        read_calibration,
    )
    from foretrace.transforms.scenario import (
        WhatIf,
        apply,
        load_scenario,
        parse_scenario,
    )

__version__ = "0.1.0"

_HOMES = {
    "record": "tracer.recording.record",
    "recording": "tracer.recording.record",
    "Session": "tracer.recording.record",
    "schedule": "tracer.recording.recorder",
    "Job": "tracer.job",
    "trainer_callback": "tracer.recording.callbacks",
    "lightning_callback": "tracer.recording.callbacks",
    "load": "tracer.readers.load",
    "save": "tracer.readers.load",
    "Trace": "tracer.trace",
    "build": "graph.build",
    "Graph": "graph.model",
    "to_frame": "graph.views",
    "to_networkx": "graph.views",
    "replay": "replaying.replay",
    "Timeline": "replaying.timeline",
    "predict": "analysis.prediction",
    "Prediction": "analysis.prediction",
    "predict_many": "analysis.scenario_sweep",
    "validate": "analysis.validation",
    "compare": "analysis.validation",
    "Validation": "analysis.validation",
    "sensitivity": "analysis.sensitivity",
    "diff": "analysis.difference.difference",
    "Difference": "analysis.difference.difference",
    "export_timeline": "export.chrome",
    "figure": "report.plot",
    "WhatIf": "transforms.scenario",
    "parse_scenario": "transforms.scenario",
    "load_scenario": "transforms.scenario",
    "apply": "transforms.scenario",
    "Calibration": "transforms.measured.calibration",
    "calibration_path": "transforms.measured.calibration",
    "read_calibration": "transforms.measured.calibration",
    "Cluster": "transforms.cluster.model",
    "load_cluster": "transforms.cluster.presets",
    "ethernet": "transforms.cluster.presets",
    "Cost": "transforms.collectives.cost",
    "collective_cost": "transforms.collectives.cost",
    "ForetraceError": "errors",
    "TraceError": "errors",
    "GraphError": "errors",
    "TransformError": "errors",
    "RecordError": "errors",
    "RefusedError": "errors",
}
"""Public name → module below the package, in the order of the pipeline."""
_ROOMS = ("whatif", "edit", "testing")
"""Modules that are part of the door."""

__all__ = [  # noqa: RUF022 - in the order of the pipeline
    "__version__",
    "record",
    "recording",
    "Session",
    "schedule",
    "Job",
    "trainer_callback",
    "lightning_callback",
    "load",
    "save",
    "Trace",
    "build",
    "Graph",
    "to_frame",
    "to_networkx",
    "replay",
    "Timeline",
    "predict",
    "Prediction",
    "predict_many",
    "validate",
    "compare",
    "Validation",
    "sensitivity",
    "diff",
    "Difference",
    "export_timeline",
    "figure",
    "WhatIf",
    "parse_scenario",
    "load_scenario",
    "apply",
    "Calibration",
    "calibration_path",
    "read_calibration",
    "Cluster",
    "load_cluster",
    "ethernet",
    "Cost",
    "collective_cost",
    "ForetraceError",
    "TraceError",
    "GraphError",
    "TransformError",
    "RecordError",
    "RefusedError",
    "whatif",
    "edit",
    "testing",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name in _ROOMS:
        return import_module(f"foretrace.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'foretrace' has no attribute {name!r}")
    value = getattr(import_module(f"foretrace.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names and nothing else."""
    return sorted(__all__)
