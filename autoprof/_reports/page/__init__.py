"""``report.html``: a saved run as one page that needs no network, with every view of it.

The records are read once, in bounded memory (``history``), into bins of steps (``bins``) and a tree of calls
(``call_tree``). ``payload`` makes plain JSON of them and of the summary; ``page`` puts it into one file with the
scripts and the style in ``assets``.
"""
