"""Numbers that float32 cannot hold keep their differences, in the log and in `starts` (F11)."""

import numpy as np
import pytest

import bcrl
from bcrl.data.dataset import centred
from bcrl.networks import Encoder, encoder_for
from bcrl.training import generators
from bcrl_bench.worlds.findings import f11_large_integers, f11_starts

CASE = f11_large_integers()
METHODS = {
    "random": bcrl.LSPE(bcrl.RandomFeatures(dim=50)),
    "bcrl": bcrl.LSPE(bcrl.BellmanComplete(dim=8, steps=60, batch_size=256), repeats=1),
    "fqe": bcrl.FQE(steps=800),
}


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("name", list(METHODS))
def test_the_value_at_other_starts_is_seen(name, kind):
    arrays = {k: v.astype(kind) if k.endswith("observations") else v for k, v in CASE.arrays.items()}
    data = bcrl.Dataset.from_arrays(**arrays)
    asked = {"discount": 0.9, "method": METHODS[name], "starts": f11_starts().astype(kind)}
    estimate = bcrl.evaluate(data, CASE.policy, **asked)
    # FQE is far from done after so few steps; where all states look alike every method says 10.
    assert estimate.value == pytest.approx(CASE.truth, rel=0.25 if name == "fqe" else 0.15)
    low, high = f11_starts() - 18, f11_starts()
    assert estimate.value_at(high)[0] > 1.5 * max(estimate.value_at(low)[0], 1.0)


def encoder(observations):
    data = bcrl.Dataset.from_arrays(
        observations,
        np.zeros((len(observations), 1)),
        np.zeros(len(observations)),
        np.ones(len(observations)),
    )
    return encoder_for(data, generator=generators(0)[1])


@pytest.mark.parametrize("offset", [0, 10**9, 2**53, 2**62])
def test_the_encoder_tells_neighbours_apart(offset):
    rows = np.arange(200)[:, None] + offset
    made = encoder(rows)
    restored = Encoder.restore(made.spec(), made.tensors())
    for one in (made, restored):
        z = one.encode({"observation": rows})[:, 0]
        assert np.diff(z) == pytest.approx(1 / np.arange(200).std(), rel=1e-3)
        assert z.mean() == pytest.approx(0.0, abs=1e-3)


def test_usual_numbers_are_read_as_before():
    rows = np.random.default_rng(0).normal(3.0, 1.0, size=(100, 2))
    assert "origin" not in encoder(rows).spec()["parts"][0]


def test_a_column_that_never_changes_stays_out_of_the_way():
    rows = np.column_stack([np.full(100, 10**12), np.arange(100) + 10**9])
    z = encoder(rows).encode({"observation": rows})
    assert np.ptp(z[:, 0]) == 0.0 and np.abs(z).max() < 3.0


def test_centred_keeps_differences_of_any_integers():
    rows = np.array([[2**62], [2**62 + 1], [-(2**62)]])
    assert centred(rows)[:, 0].tolist() == [0.0, 1.0, -float(2**63)]
    assert centred(np.array([[250], [3]], dtype=np.uint8))[:, 0].tolist() == [0.0, -247.0]
