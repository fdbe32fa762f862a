"""Record a job; read Kineto, Nsight Systems and own files into the trace table."""
