"""``python -m tests.simulated demo --device sim``: a command of autoprof where the simulated accelerator is loaded."""

import sys

from autoprof.frontends.cli import main

from .simulated_accelerator import CannotBuildError, load

if __name__ == "__main__":
    try:
        accelerator = load()
    except CannotBuildError as error:
        raise SystemExit(f"tests.simulated: {error}") from None
    accelerator.set_kernel_ns(0)  # kernels take as long as on the CPU
    raise SystemExit(main(sys.argv[1:]))
