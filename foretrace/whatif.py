"""Every what-if by name, ready for `foretrace.predict`: ``whatif.amp(dtype="bf16")``.

Called with its parameters, each gives a `WhatIf`; ``foretrace transforms`` lists them all.

>>> from foretrace import whatif
>>> print(whatif.faster_host(speedup=2))
faster_host(speedup=2)
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.scenario import what_if

if TYPE_CHECKING:
    from foretrace.transforms.scenario import WhatIf


def __getattr__(name: str) -> Any:
    """Return the what-if *name*: a function of its parameters alone."""
    if name not in TRANSFORMS:
        raise AttributeError(f"module 'foretrace.whatif' has no what-if {name!r}")

    def with_parameters(**parameters: Any) -> WhatIf:
        return what_if(name, parameters)

    return update_wrapper(with_parameters, TRANSFORMS[name])


def __dir__() -> list[str]:
    """Return the names of all what-ifs."""
    return sorted(TRANSFORMS)
