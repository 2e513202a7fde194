"""Three policies by two methods on one page: what they earn, which is best, and which values not to believe.

The third policy does what nobody logged. Look at its verdict, not at its number.
"""

from pathlib import Path

import numpy as np

import bcrl

generator = np.random.default_rng(0)
EPISODES, STEPS = 80, 40
position, push, reward, following = (np.zeros((EPISODES, STEPS)) for _ in range(4))
x = np.linspace(1, 2, EPISODES)
for step in range(STEPS):
    u = -0.3 * x + 0.2 * generator.normal(size=EPISODES)
    position[:, step], push[:, step], reward[:, step] = x, u, -(x**2) - 0.1 * u**2
    x = x + u + 0.05 * generator.normal(size=EPISODES)
    following[:, step] = x
dataset = bcrl.Dataset.from_arrays(
    observations=position.reshape(-1, 1),
    actions=push.reshape(-1, 1),
    rewards=reward.ravel(),
    terminated=np.zeros(reward.size, bool),
    truncated=np.tile(np.arange(STEPS) == STEPS - 1, EPISODES),
    next_observations=following.reshape(-1, 1),
)


def quadratic(observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Features by hand: here the value is exactly linear in them."""
    s, a = observations[:, 0], actions[:, 0]
    return np.stack([np.ones_like(s), s, a, s * s, s * a, a * a], axis=1)


policies = {"as logged": lambda x: -0.3 * x, "firmer": lambda x: -0.5 * x, "away": lambda x: 1.5 * x + 3.0}
methods = {
    "random features": bcrl.LSPE(bcrl.RandomFeatures(dim=100)),
    "by hand": bcrl.LSPE(bcrl.GivenFeatures(quadratic)),
}
comparison = bcrl.compare(dataset, policies, discount=0.9, methods=methods)

print(f"logged: {comparison.logged.value:.2f}")
for policy in comparison.policies:
    for method, estimate in comparison.estimates[policy].items():
        print(f"{policy:>10} by {method:<15} {estimate.value:8.2f}  {estimate.verdict}")
    print(f"{'':>10} {comparison.headline(policy)[1]}: {estimate.reasons[0]}")
comparison.save("results.json")
print(bcrl.write_report(comparison, Path("report.html")))
