"""CPU cores, memory and bandwidth in, the throughput of a job that loads data out."""
