"""What can go wrong, on one page.

    ForetraceError
    ├── TraceError       a trace file is unusable
    ├── GraphError       a graph breaks an invariant
    ├── TransformError   a what-if does not apply, or its parameters are wrong
    ├── RecordError      a job cannot be recorded
    └── RefusedError     the numbers given do not carry an answer about the job

Each is also a ``ValueError``. The text is one line: what, where, what to do.
"""

LONGEST = 1_500
"""Characters of an error's text: what a file says in it may be of any length."""


class ForetraceError(ValueError):
    """Base of every error that is the input's fault and not a bug."""

    def __str__(self) -> str:
        """Return the text; the middle of a very long one is left out."""
        text = super().__str__()
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 300]} … {text[-250:]}"


class TraceError(ForetraceError):
    """A trace file is unusable; the text says why."""


class GraphError(ForetraceError):
    """A graph breaks an invariant; the text names the task, edge or column."""


class TransformError(ForetraceError):
    """A what-if does not apply to this graph, or a parameter is out of range."""


class RecordError(ForetraceError):
    """A job cannot be recorded."""


class RefusedError(ForetraceError):
    """The numbers given do not carry an answer; the text says why and what would."""
