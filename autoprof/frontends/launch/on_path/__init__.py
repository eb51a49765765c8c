"""The folder that ``autoprof run`` puts first on ``PYTHONPATH``."""
