"""Record a step: clocks, marks, memory readings, and the probes that make them."""
