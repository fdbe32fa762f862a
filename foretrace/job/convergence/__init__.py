"""A log of losses in, the step at which a loss is reached out."""
