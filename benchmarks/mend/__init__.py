"""Mend the defects of ``autoprof rules`` by a program that reads nothing but ``autoprof explain --json``."""
