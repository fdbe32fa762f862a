"""A graph and a selection in, an edited graph out: the only ways in which what-ifs change graphs.

Imports graph and util. Public as `foretrace.edit`.
"""
