"""Whole clusters whose disks are encrypted, each with keys of its own: the same promises."""

from dataclasses import replace

import pytest

from simulation.cluster_run import options_of, run_cluster
from tests.sim.seeds import replayable, seeds

pytestmark = pytest.mark.usefixtures("quiet")

ENCRYPTED = {"encryption.kek.source": "env:KEK", "encryption.enable": "true"}


@pytest.mark.parametrize("seed", seeds(3))
def test_every_invariant_holds_with_encrypted_disks(
    seed: int, request: pytest.FixtureRequest
) -> None:
    options = options_of(seed)
    options = replace(options, overrides={**options.overrides, **ENCRYPTED})
    with replayable(seed, request):
        run_cluster(seed, options)
