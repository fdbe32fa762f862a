"""Data parallelism as torch does it: `ddp` decides, `nccl` and `gloo` place the all-reduces."""
