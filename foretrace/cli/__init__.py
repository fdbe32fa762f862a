"""What the user types in, text or one JSON object out: a module per group of commands.

`app` assembles them. Each command imports what it runs, so that ``--help`` is quick.
"""
