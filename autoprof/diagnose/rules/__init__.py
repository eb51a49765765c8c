"""The rules: a module each, with its bounds and their reasons, its judgement and advice, and its defects."""
