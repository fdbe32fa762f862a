"""Pipeline parallelism: layers cut into stages, micro-batches sent between them by a schedule."""
