"""Layers substituted as in MetaFlow: `metaflow` changes them, `sibling_layers` finds them."""
