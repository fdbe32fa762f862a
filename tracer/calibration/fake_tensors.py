"""Build and run a job without data and without running anything: tensors have shapes only.

`without_data` is the context in which a changed job is made and stepped once, to see which
operators it would run (`operator_log`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def without_data() -> Iterator[None]:
    """Make every tensor that is created while this is open a fake one, with a shape only."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True), _converting_by_replacing():
        yield


@contextmanager
def _converting_by_replacing() -> Iterator[None]:
    """Let ``module.to(...)`` put new parameters in place of the old ones.

    Torch would swap the contents of the two, which it refuses for fake tensors.
    """
    import torch

    torchs_own = torch.nn.Module._apply  # noqa: SLF001 - what .to() and .cuda() go through
    conversions: dict[tuple[int, int], Any] = {}

    def convert_once(parameter: Any, convert: Callable[[Any], Any]) -> Any:
        """Convert a parameter that several modules share once."""
        key = (id(parameter), id(convert))
        if key not in conversions:
            with torch.no_grad():
                new = convert(parameter)
            if new is not parameter:
                new = torch.nn.Parameter(new, parameter.requires_grad)
            conversions[key] = (new, parameter, convert)  # both kept alive: their ids stay theirs
        return conversions[key][0]

    def apply(self: Any, convert: Callable[[Any], Any], recurse: bool = True) -> Any:  # noqa: FBT001, FBT002 - torch's signature
        for child in self.children() if recurse else ():
            child._apply(convert)  # noqa: SLF001 - same
        for name, value in self._parameters.items():
            if value is not None:
                self._parameters[name] = convert_once(value, convert)
        for name, value in self._buffers.items():
            if value is not None:
                self._buffers[name] = convert(value)
        return self

    torch.nn.Module._apply = apply  # noqa: SLF001 - same
    try:
        yield
    finally:
        torch.nn.Module._apply = torchs_own  # noqa: SLF001 - same
