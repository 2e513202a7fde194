"""The benchmark's reference loop computes the same thing as ours, so that their times may be compared."""

import numpy as np

from bcrl.linear import Moments, lspe
from bcrl_bench.speed.linear import DISCOUNT, make_data
from bcrl_bench.speed.reference.lspe_direct import lspe_direct


def test_reference_loop_and_moments_agree():
    arrays = make_data(count=3000, dim=24, seed=1)
    x0 = arrays[0][0]
    theta, curve = lspe_direct(*arrays, discount=DISCOUNT, iterations=300, start_features=x0)
    ours = lspe(Moments.from_features(*arrays), DISCOUNT, start_features=x0, iterations=300, tolerance=0.0)
    np.testing.assert_allclose(ours.theta, theta, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.curve, curve, rtol=1e-8, atol=1e-10)
