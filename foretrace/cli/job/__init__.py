"""``foretrace job``: a module per question about the whole job; `app` lists them.

Imports `foretrace.job` and below, inside of functions: a command loads what it needs.
"""
