"""Callbacks that record the trainings of a framework, each in one line.

A module has the name of its framework, and imports it: ``transformers``, ``lightning``.
"""
