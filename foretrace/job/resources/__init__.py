"""Parts of a step, cores, memory and a disk in, throughput and its price over a grid out.

Imports transforms, analysis and the tracer for what a recording says, and of the job `answer`.
"""
