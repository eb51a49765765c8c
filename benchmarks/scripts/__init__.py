"""Training scripts of other projects, run unchanged by ``autoprof run``: the steps found, against those counted."""
