"""How far off an answer may be: doubts about what a change meets, and the interval.

In: a change and the unchanged job. Out: named doubts, and the interval for 90 % of such answers.
"""
