"""Which gradients DDP reduces together, as torch's reducer groups them.

In: sizes in the order in which gradients become ready. Out: groups of their indices.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from foretrace.transforms.edit.parameters import positive

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

MIB = 1 << 20
CAP_MB = 25.0
"""Default cap of a bucket in MiB (torch, ``DistributedDataParallel``)."""
FIRST_MB = 1.0
"""Default cap of the first bucket in MiB (torch, ``dist._DEFAULT_FIRST_BUCKET_BYTES``)."""
UNIFORM_SINCE = (2, 4)
"""Version of torch from which a cap given explicitly holds for the first bucket, too
(pytorch/pytorch#121640)."""


class Caps(NamedTuple):
    """Caps in bytes: of the first bucket and of the others."""

    first: int
    others: int


def caps(
    bucket_cap_mb: float | None = None,
    first_bucket_mb: float | None = None,
    framework: str | None = None,
) -> Caps:
    """Return the caps that torch uses, for caps in MiB as its user gives them.

    Without *bucket_cap_mb* the first bucket is small, so that communication begins early. One given
    explicitly holds for all buckets, in versions of torch before 2.4 for all but the first.

    Examples
    --------
    >>> caps(), caps(100.0)
    (Caps(first=1048576, others=26214400), Caps(first=104857600, others=104857600))
    >>> caps(100.0, framework="torch 1.13.0")
    Caps(first=1048576, others=104857600)
    """
    cap = CAP_MB if bucket_cap_mb is None else positive("bucket_cap_mb", bucket_cap_mb)
    small = bucket_cap_mb is None or _is_before(framework, UNIFORM_SINCE)
    first = FIRST_MB if small else cap
    if first_bucket_mb is not None:
        first = positive("first_bucket_mb", first_bucket_mb)
    return Caps(max(1, int(first * MIB)), max(1, int(cap * MIB)))


def _is_before(framework: str | None, version: tuple[int, int]) -> bool:
    release = re.search(r"torch (\d+)\.(\d+)", framework or "")
    return release is not None and (int(release[1]), int(release[2])) < version


def fill_buckets(
    sizes: Sequence[int], limits: Caps, kinds: Sequence[Hashable] | None = None
) -> list[list[int]]:
    """Return the buckets: indices into *sizes*, in the order in which buckets close.

    A tensor is added and never split; a bucket that has reached its cap closes, and what is left at
    the end makes the last ones. Tensors of two *kinds* (types, devices) never share a bucket.

    Examples
    --------
    >>> fill_buckets([3, 3, 9, 1], Caps(4, 8))
    [[0, 1], [2], [3]]
    """
    kinds = kinds or [None] * len(sizes)
    buckets: list[list[int]] = []
    open_: dict[Hashable, list[int]] = {}
    filled: dict[Hashable, int] = {}
    closed: dict[Hashable, int] = {}
    for index, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        open_.setdefault(kind, []).append(index)
        filled[kind] = filled.get(kind, 0) + size
        if filled[kind] >= (limits.others if closed.get(kind) else limits.first):
            buckets.append(open_.pop(kind))
            filled[kind], closed[kind] = 0, closed.get(kind, 0) + 1
    return buckets + list(open_.values())
