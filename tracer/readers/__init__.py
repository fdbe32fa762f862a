"""Files in, a `Trace` out, whoever wrote them: `load` looks at the content, a room per format.

Imports `trace`, `data_issues` and util; no torch.
"""
