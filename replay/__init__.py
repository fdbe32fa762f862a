"""Graph to timeline: lowering, two compiled engines, steady state and critical path."""
