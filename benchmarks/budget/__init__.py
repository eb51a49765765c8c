"""Whether the governor keeps its budget, and what its samples are worth."""
