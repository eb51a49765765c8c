"""``autoprof run``: find the models that an unchanged program trains, and open their sessions.

The command starts Python on the program itself, so ``__main__``, ``sys.argv``, signals and the exit status are those of
the program. ``on_path/sitecustomize.py`` comes first on ``PYTHONPATH``: Python imports it at its start, and it calls
``startup.begin``. Until the program makes an optimizer, nothing but one import hook is in place.
"""
