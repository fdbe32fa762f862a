"""Models and variants in, archives of measured before/after pairs out.

Needs torch and the standard library alone: a recording machine may have nothing else.
"""
