"""Who waits for whom: synchronising calls, events and streams, gaps that nothing else explains."""
