"""Several workers: recorded ranks, shaped links, collectives and plans that others measured."""
