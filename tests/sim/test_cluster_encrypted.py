"""Whole clusters whose disks are encrypted, each with keys of its own: the same promises."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from simulation.cluster_run import options_of, run_cluster
from simulation.results import Violation
from tests.sim.seeds import replayable, seeds

ENCRYPTED = {"encryption.kek.source": "env:KEK", "encryption.enable": "true"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", seeds(3))
def test_every_invariant_holds_with_encrypted_disks(
    seed: int, request: pytest.FixtureRequest
) -> None:
    options = options_of(seed)
    options = replace(options, overrides={**options.overrides, **ENCRYPTED})
    with replayable(seed, request):
        try:
            run_cluster(seed, options)
        except Violation as violation:
            violation.add_note("\n".join(violation.journal))
            raise
