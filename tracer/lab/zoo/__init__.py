"""Names in, jobs out: models, variants and data sets to record."""
