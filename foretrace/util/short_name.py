"""A name in, what fits out."""


def short(name: str, width: int = 90) -> str:
    """Return *name*, cut to *width* characters.

    >>> short("elementwise_kernel", 12)
    'elementwise…'
    """
    return name if len(name) <= width else name[: width - 1] + "…"
