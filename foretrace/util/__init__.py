"""What every room may use and no room owns: files, progress, declared tables, targets.

Imports errors alone.
"""
