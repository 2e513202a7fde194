"""Two policies that Stable-Baselines3 trained and saved, evaluated on the log of the first.

SB3's files contain pickles, so loading one can run code: `trust=True` (`--trust`) says that you know where
the file comes from.
"""

import gymnasium
import numpy as np
from stable_baselines3 import PPO

import bcrl

model = PPO("MlpPolicy", "Pendulum-v1", n_steps=256, seed=0, device="cpu").learn(1024)
model.save("old.zip")


def record(episodes: int) -> bcrl.Dataset:
    """Episodes of the model as it is now, with exploration."""
    world = gymnasium.make("Pendulum-v1")
    logged = []
    for number in range(episodes):
        seen, actions, rewards, over = [world.reset(seed=number)[0]], [], [], False
        while not over:
            action, _ = model.predict(seen[-1])
            observation, reward, terminated, truncated, _ = world.step(action)
            seen.append(observation), actions.append(action), rewards.append(reward)
            over = terminated or truncated
        episode = {"observations": np.array(seen), "actions": np.array(actions), "rewards": np.array(rewards)}
        logged.append(episode | {"terminated": terminated})
    return bcrl.Dataset.from_episodes(logged)


dataset = record(episodes=20)
model.learn(1024)
model.save("new.zip")

method = bcrl.LSPE(bcrl.RandomFeatures(dim=150))
files = {"new": "new.zip", "old": "old.zip"}
comparison = bcrl.compare(dataset, files, discount=0.95, methods={"random": method}, trust=True)

print(f"logged, exploring: {comparison.logged.value:.1f}")
for name in files:
    estimate, best = comparison.estimates[name]["random"], comparison.probability_best["random"][name]
    low, high = estimate.interval.low, estimate.interval.high
    print(f"{name}: {estimate.value:.1f} ({low:.1f} to {high:.1f}), {estimate.verdict}, best with {best:.0%}")
