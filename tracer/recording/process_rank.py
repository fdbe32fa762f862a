"""Which rank of a distributed job this process is, and where that rank writes its trace."""

from __future__ import annotations

import sys
from pathlib import Path


def process_rank() -> int | None:
    """Return this process' rank among several, as torch.distributed knows it; else ``None``."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()) if distributed.get_world_size() > 1 else None


def file_of_rank(path: str | Path, rank: int | None) -> Path:
    """Return where *rank* writes what the job calls *path*, so that no rank replaces another's.

    >>> str(file_of_rank("trace.parquet", 3)), str(file_of_rank("trace.parquet", None))
    ('trace.rank3.parquet', 'trace.parquet')
    """
    path = Path(path)
    return path if rank is None else path.with_suffix(f".rank{rank}{path.suffix}")
