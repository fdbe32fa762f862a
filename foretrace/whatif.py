"""Every what-if by name, ready for `foretrace.predict`: ``whatif.amp(dtype="bf16")``.

Called with its parameters, each gives a `WhatIf`; ``foretrace transforms`` lists them all.

>>> from foretrace import whatif
>>> print(whatif.faster_host(speedup=2))
faster_host(speedup=2)
"""

from __future__ import annotations

import inspect
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from foretrace.transforms.edit.parameters import did_you_mean
from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.scenario import what_if
from foretrace.transforms.signatures import parameters_of

if TYPE_CHECKING:
    from foretrace.transforms.scenario import WhatIf


def __getattr__(name: str) -> Any:
    """Return the what-if *name*: a function of its parameters alone."""
    if name not in TRANSFORMS:
        hint = did_you_mean(name, TRANSFORMS)
        raise AttributeError(f"module 'foretrace.whatif' has no what-if {name!r}{hint}")

    def with_parameters(**parameters: Any) -> WhatIf:
        return what_if(name, parameters)

    update_wrapper(with_parameters, TRANSFORMS[name])
    parameters = list(parameters_of(TRANSFORMS[name]).values())
    with_parameters.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_parameters


def __dir__() -> list[str]:
    """Return the names of all what-ifs."""
    return sorted(TRANSFORMS)
