"""Marks: their codes, the batch of one step, and the extension in C that records them."""
