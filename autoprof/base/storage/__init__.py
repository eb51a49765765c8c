"""The files of a run: its folder, its records, and reading them back."""
