"""Events become tasks: operators and calls of the host, kernels and copies, launches."""
