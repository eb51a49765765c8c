"""``report.html``: a saved run as one page that needs no network.

The records are read once, in bounded memory (``history``). ``payload`` makes plain JSON of them and of the summary;
``page`` puts it into one file with the scripts and the style in ``assets``.
"""
