"""Answers in, text or JSON keys out: one form per kind of answer.

Imports analysis and below.
"""
