"""Where this project measures: a model zoo, before/after pairs, collectives between processes."""
