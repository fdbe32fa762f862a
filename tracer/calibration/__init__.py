"""The user's job and a change in, operator times in their old and new form out.

Imports torch where it is used, `recording` and util.
"""
