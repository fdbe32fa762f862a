"""P3: slices of gradients over parameter servers, and the order in which lanes serve them."""
