"""PyTorch's Kineto JSON in, a `Trace` out: `read` names the steps."""
