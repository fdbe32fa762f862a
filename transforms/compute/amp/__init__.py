"""Automatic mixed precision: `amp` chooses, `cuda` and `cpu` apply it, `grad_scaler` for fp16."""
