"""The rules: a module each, with its bounds and their reasons, its judgement and its advice."""
