"""Evaluate on a dataset that Minari's own collector recorded.

Minari keeps its datasets in ~/.minari, or in the folder MINARI_DATASETS_PATH. For bcrl each of them is
`minari:ID`, also those that `minari download` fetched.
"""

import gymnasium
import minari
import numpy as np

import bcrl

ID = "example/pendulum-v0"
generator = np.random.default_rng(0)


def swing(observations: np.ndarray) -> np.ndarray:
    """Push with the swing at full force, and balance near the top; observations are cos, sin, speed."""
    cos, sin, speed = observations.T
    upright = -10.0 * np.arctan2(sin, cos) - 2.0 * speed
    return np.clip(np.where(cos > 0.8, upright, 2.0 * np.sign(speed)), -2, 2)[:, None]


def record(episodes: int) -> None:
    """The controller with exploration noise, logged by Minari."""
    world = minari.DataCollector(gymnasium.make("Pendulum-v1"))
    for number in range(episodes):
        observation, _ = world.reset(seed=number)
        over = False
        while not over:
            action = swing(observation[None])[0] + generator.normal(0, 1, 1)
            observation, _, terminated, truncated, _ = world.step(action.clip(-2, 2).astype(np.float32))
            over = terminated or truncated
    world.create_dataset(ID)
    world.close()


if ID not in minari.list_local_datasets():
    record(episodes=20)
dataset = bcrl.load_dataset(f"minari:{ID}")
method = bcrl.LSPE(bcrl.RandomFeatures(dim=200))
estimate = bcrl.evaluate(dataset, swing, discount=0.95, method=method)

print(f"{dataset.source}: {dataset.num_episodes} episodes, {len(dataset)} transitions")
low, high = estimate.interval.low, estimate.interval.high
print(f"value {estimate.value:.1f} ({low:.1f} to {high:.1f}), {estimate.verdict}")
for reason in estimate.reasons:
    print(f"  - {reason}")
