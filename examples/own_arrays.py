"""From plain arrays to a value with its interval and verdict.

A noisy controller pushed a point towards 0 for 100 episodes. What would a firmer controller without noise
have earned? For this world the answer is known, so it is printed beside the estimate.
"""

import numpy as np

import bcrl

DISCOUNT, NOISE, GAIN, STEPS = 0.95, 0.05, 0.5, 40


def log(generator: np.random.Generator, episodes: int) -> bcrl.Dataset:
    """Episodes of the logging controller; the record of each stops after STEPS steps, the world goes on."""
    position, push, reward, following = (np.zeros((episodes, STEPS)) for _ in range(4))
    x = np.linspace(1, 2, episodes)
    for step in range(STEPS):
        u = -0.3 * x + 0.2 * generator.normal(size=episodes)
        position[:, step], push[:, step], reward[:, step] = x, u, -(x**2) - 0.1 * u**2
        x = x + u + NOISE * generator.normal(size=episodes)
        following[:, step] = x
    return bcrl.Dataset.from_arrays(
        observations=position.reshape(-1, 1),
        actions=push.reshape(-1, 1),
        rewards=reward.ravel(),
        terminated=np.zeros(reward.size, bool),
        truncated=np.tile(np.arange(STEPS) == STEPS - 1, episodes),
        next_observations=following.reshape(-1, 1),
    )


def exact_value() -> float:
    """V(x) = -(p x^2 + c) solves the Bellman equation of u = -GAIN x; x is uniform on [1, 2] at the start."""
    p = (1 + 0.1 * GAIN**2) / (1 - DISCOUNT * (1 - GAIN) ** 2)
    return -(p * 7 / 3 + DISCOUNT * p * NOISE**2 / (1 - DISCOUNT))


dataset = log(np.random.default_rng(0), episodes=100)
method = bcrl.LSPE(bcrl.RandomFeatures(dim=100))  # without `method`: the paper's, a minute or two
estimate = bcrl.evaluate(dataset, lambda x: -GAIN * x, discount=DISCOUNT, method=method)

print(
    f"value {estimate.value:.3f}, 95 % interval {estimate.interval.low:.3f} to {estimate.interval.high:.3f}"
)
print(f"exact {exact_value():.3f}")
print(f"verdict: {estimate.verdict}")
for reason in estimate.reasons:
    print(f"  - {reason}")
print("V at 0, 1, 2:", estimate.value_at(np.array([[0.0], [1.0], [2.0]])).round(3))
