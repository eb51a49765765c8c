"""The same on a machine with CUDA: ``python -m benchmarks.gpu``. Needs the repository, torch and numpy, and no plot."""
