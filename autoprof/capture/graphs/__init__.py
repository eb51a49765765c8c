"""Time modules inside the graphs of ``torch.compile``, whose hooks do not fire.

Inductor generates a Python file for each graph, whose function ``call`` calls one kernel after another. ``naming``
notes during code generation which modules each kernel works for, and keeps it beside torch's cache. For a graph from
the cache of a run without autoprof, ``retrace`` makes the nodes again, and ``buffers`` finds those of each kernel.
``generated`` inserts marks between the calls of a copy of ``call``, which takes the original's place in recorded steps.
"""
