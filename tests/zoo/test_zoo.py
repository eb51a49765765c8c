"""Every case of the zoo: the same bits, objects, hooks and memory as bare; an account that closes; no backward missed.

Outside ``make test-zoo`` the cases made for the purpose run, and a few of torch's own; ``AUTOPROF_ZOO=1`` runs all, and
then a package that is missing is an error.
"""

import gc
from collections.abc import Iterator

import pytest
from zoo_case import Case
from zoo_harness import run_case
from zoo_registry import chosen_cases

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:::autoprof")]


@pytest.fixture(scope="module", autouse=True)
def thaw() -> Iterator[None]:
    """Give back to the garbage collector what the cases took from it."""
    yield
    gc.unfreeze()


@pytest.mark.parametrize("case", chosen_cases(), ids=str)
def test_the_model_is_unharmed_and_its_account_is_true(case: Case) -> None:
    """Bits, hooks, identities, memory, closure and coverage; ``problems`` says in words what is wrong."""
    verdict = run_case(case)
    assert not verdict.problems
    assert verdict.passed
    assert verdict.covered == verdict.received
