"""Measure whether recording keeps its budget, and how good the means of sampled steps are."""
