"""An SQLite export of Nsight Systems in, a `Trace` out: `read` names the steps."""
