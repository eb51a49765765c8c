"""The files of a run: written once, never overwritten, read back."""
