"""Recording inside a loop of one's own: run it as a script."""

from own_job import job

from foretrace import recording

training = job()
with recording(training, out="loop.parquet") as session:
    while not session.done:  # or any loop that is long enough: step() then does nothing more
        training.step()
        session.step()
steps_ns = session.trace.meta.unprofiled_step_ns
print(f"{len(steps_ns)} steps of {sum(steps_ns) / len(steps_ns) / 1e6:.2f} ms without the profiler")
