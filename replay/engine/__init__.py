"""Program in, schedule out: the two compiled engines and what they are compiled from.

In: a `Program`, arrays that `lower` made of a graph. Out: a `Schedule`, a start and an end per task
and repetition. Imports nothing but errors: no engine knows a graph.
"""
