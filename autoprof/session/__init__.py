"""A session: its steps, its sampling, its pipeline, and the builder that puts them together."""
