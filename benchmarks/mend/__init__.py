"""Mend the defects of ``tests/defects`` by a program that reads nothing but ``autoprof explain --json``."""
