"""Batches: where the loader's work lies, its workers, and the pace that they keep."""
