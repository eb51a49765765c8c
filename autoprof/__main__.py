"""``python -m autoprof``."""

import sys

import autoprof

if __name__ == "__main__":
    if not hasattr(autoprof, "__all__"):  # the other project was installed later: its __init__.py has replaced ours
        from .base.other_project import ADVICE

        sys.exit(f"autoprof: {ADVICE}")
    from .frontends.cli import main

    sys.exit(main())
