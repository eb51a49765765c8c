"""What the report says where the ranks do not exchange messages."""

from types import SimpleNamespace
from typing import Any

from autoprof.base.summary import Summary
from autoprof.session.rank_exchange import RankExchange


def test_an_exchange_that_has_ended_names_the_command_that_compares_the_ranks() -> None:
    """The records of the other ranks may be incomplete when this one ends."""
    exchange: Any = SimpleNamespace(failure="its store is a FileStore", connected=False)
    (note,) = RankExchange(exchange, shows=True).annotate(Summary()).notes
    assert note.startswith("the exchange with the other ranks has ended: its store is a FileStore.")
    assert "`autoprof show RUN` compares them" in note
