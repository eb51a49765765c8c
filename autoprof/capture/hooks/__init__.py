"""Hooks on modules, autograd nodes and optimizers, and spans in the user's code."""
