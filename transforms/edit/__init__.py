"""A graph and a selection in, an edited graph out: the only ways in which what-ifs change graphs.

`select` and `columns` say which tasks, `primitives`, `remove`, `repeat` and `side_stream` change
them, `parameters` checks what the user gave, `provenance` keeps what was done. Imports graph alone.
Public as `foretrace.edit`.
"""
