"""The architectures written here, by name, listed without importing torch."""

VISION = (
    *("alexnet", "squeezenet", "inception", "shufflenet", "regnet", "efficientnet"),
    *("preact", "fcn", "espcn", "r3d", "mixer", "hourglass"),
)
LOOPS = (
    *("two_optimizers", "sparse", "frozen", "evaluating", "averaged", "distilled", "contrastive"),
    *("ctc", "moe", "clipped", "diffusion", "physics", "graph", "gan", "reinforced"),
)
