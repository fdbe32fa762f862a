"""Answers in, one self-contained HTML page out, or the same page served live.

Imports report, export, analysis and below; what a browser runs lies beside as JavaScript and CSS.
"""
