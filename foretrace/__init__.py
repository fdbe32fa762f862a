"""How fast would this training job run if …? Record once, then ask.

The public door: everything below is loaded on first use, so that importing the package is quick
and needs neither torch nor pandas until a trace is touched.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.errors import (
        ForetraceError,
        GraphError,
        RecordError,
        RefusedError,
        TraceError,
        TransformError,
    )
    from foretrace.graph.build import build
    from foretrace.graph.model import Graph
    from foretrace.predict import Prediction, predict
    from foretrace.replay import Timeline, replay
    from foretrace.tracer.files import load
    from foretrace.tracer.record import record
    from foretrace.tracer.trace import Trace
    from foretrace.validate import Validation, validate

__version__ = "0.1.0"

_HOMES = {
    "ForetraceError": "foretrace.errors",
    "Graph": "foretrace.graph.model",
    "GraphError": "foretrace.errors",
    "Prediction": "foretrace.predict",
    "RecordError": "foretrace.errors",
    "RefusedError": "foretrace.errors",
    "Timeline": "foretrace.replay",
    "Trace": "foretrace.tracer.trace",
    "TraceError": "foretrace.errors",
    "TransformError": "foretrace.errors",
    "Validation": "foretrace.validate",
    "build": "foretrace.graph.build",
    "load": "foretrace.tracer.files",
    "predict": "foretrace.predict",
    "record": "foretrace.tracer.record",
    "replay": "foretrace.replay",
    "validate": "foretrace.validate",
}

__all__ = [  # noqa: RUF022  # grouped: the pipeline, its types, the errors
    "record",
    "load",
    "build",
    "replay",
    "predict",
    "validate",
    "Trace",
    "Graph",
    "Timeline",
    "Prediction",
    "Validation",
    "ForetraceError",
    "TraceError",
    "GraphError",
    "TransformError",
    "RecordError",
    "RefusedError",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module; a transform by its own name."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name.startswith("_") or find_spec(f"foretrace.{name}"):  # a module is imported, not got
        raise AttributeError(f"module 'foretrace' has no attribute {name!r}")
    else:
        transforms = import_module("foretrace.transforms").TRANSFORMS
        if name not in transforms:
            raise AttributeError(f"module 'foretrace' has no attribute {name!r}")
        value = transforms[name]
    globals()[name] = value
    return value


class _Door(ModuleType):
    """Keeps ``foretrace.predict`` the function although a submodule has the same name.

    The import system binds every imported submodule on its package; a public name is not
    overwritten by that. ``from foretrace.predict import Prediction`` works all the same.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Door
