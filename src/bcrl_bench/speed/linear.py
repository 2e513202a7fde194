"""Speed of linear evaluation at N = 100k, d = 512, K = 1000 in float64, on the threads that BLAS is given
(two).

Ratios: lspe_vs_direct (reference loop over ours from ready moments, at least 150), lspe_total_vs_direct
(moments pass counted, at least 6), moments_vs_matmul (ours over its three bare products, at most 1.5). The
reference is timed over REFERENCE_STEPS iterations and scaled to K: its iterations all cost the same. Best of
several runs each, because both share the machine.
"""

import json
import time

import numpy as np

from bcrl.linear import Moments, lspe
from bcrl_bench.speed.reference.lspe_direct import lspe_direct

COUNT, DIM, ITERATIONS, REFERENCE_STEPS, DISCOUNT = 100_000, 512, 1000, 20, 0.99


def make_data(count=COUNT, dim=DIM, seed=0):
    """Features whose next features are a noisy contraction of them; a hundredth of the rows terminate."""
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((count, dim))
    next_phi = rng.standard_normal((count, dim))
    next_phi *= 0.6
    next_phi += 0.7 * phi
    return phi, next_phi, phi[:, 0] + rng.standard_normal(count), rng.random(count) < 0.01


def best(call, repeats):
    """Least seconds of several runs."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def reference_seconds(arrays, x0, repeats=3):
    """Seconds of ITERATIONS reference iterations: set-up measured, the loop measured over REFERENCE_STEPS and
    scaled.
    """

    def run(steps):
        return best(
            lambda: lspe_direct(*arrays, discount=DISCOUNT, iterations=steps, start_features=x0), repeats
        )

    short, long = run(1), run(1 + REFERENCE_STEPS)
    return short + (ITERATIONS - 1) * (long - short) / REFERENCE_STEPS


def row(ours, reference, ratio):
    return {"ratio": ratio, "ours": ours, "reference": reference, "unit": "s"}


def measure():
    """The three measurements, by name."""
    arrays = make_data()
    phi, next_phi, *_ = arrays
    x0 = phi[0]
    moments = Moments.from_features(*arrays)
    ours = best(lambda: lspe(moments, DISCOUNT, start_features=x0, iterations=ITERATIONS, tolerance=0.0), 7)
    pass_seconds = best(lambda: Moments.from_features(*arrays), 3)
    products = best(lambda: (phi.T @ phi, phi.T @ next_phi, next_phi.T @ next_phi), 3)
    direct = reference_seconds(arrays, x0)
    return {
        "lspe_vs_direct": row(ours, direct, direct / ours),
        "lspe_total_vs_direct": row(ours + pass_seconds, direct, direct / (ours + pass_seconds)),
        "moments_vs_matmul": row(pass_seconds, products, pass_seconds / products),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
