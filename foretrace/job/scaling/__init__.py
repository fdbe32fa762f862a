"""Measured speeds over workers and batch sizes in, the speed elsewhere out."""
