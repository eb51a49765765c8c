"""The command ``autoprof``, and what its commands do: start programs, compare runs, check an installation."""
