"""Datasets and truth of the grid, made once a machine and then read from the cache.

Episode e of every dataset starts in the state that the seed (0, e) gives, whoever acts in it. So the truth is
known at exactly the start states of the data: from each of them the target policy is rolled out, past the
time limit. In a deterministic world that return is V(s0) itself, and errors carry no noise from sampling
start states.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.build.combine import concatenate
from bcrl.data.dataset import Array, Dataset
from bcrl.data.storage.folder import open_folder
from bcrl_bench.collect import Collection, Source, collect
from bcrl_bench.experiments.profile import Experiment, Profile
from bcrl_bench.policies.shipped import WEIGHTS, shipped_policy
from bcrl_bench.processes import file_lock
from bcrl_bench.rollouts import Behaviour
from bcrl_bench.truth import Truth, TruthQuestion, true_value

SEED = 0  # of all collections; experiments vary the seed of training
EVERY = 20  # visited steps between two that are compared


def waiting_for(profile: Profile, experiment: Experiment) -> list[str]:
    """Shipped actors that a cell needs and that do not exist (yet)."""
    task = experiment.task
    levels = [*profile.datasets[experiment.dataset], experiment.policy]
    names = dict.fromkeys(profile.actor(task, level) for level in levels)
    return [f"{task}/{name}" for name in names if not (WEIGHTS / task / f"{name}.safetensors").is_file()]


@dataclass(frozen=True)
class World:
    """What a profile's cells run on."""

    profile: Profile
    cache: Path

    def policy(self, task: str, level: str) -> Any:  # noqa: ANN401 - a state or a pixel actor
        """The actor of a level."""
        return shipped_policy(task, self.profile.actor(task, level))

    def dataset(self, task: str, name: str) -> Dataset:
        """The episodes of a dataset's actors, one actor after the other, each labelled with who made it."""
        noise, episodes, levels = self.profile.noise, self.profile.episodes, self.profile.datasets[name]
        parts = [self._collected(task, level, noise, episodes) for level in levels]
        if len(parts) == 1:
            return parts[0]
        return replace(concatenate(parts), behaviour=np.repeat(levels, [part.num_episodes for part in parts]))

    def truth(self, task: str, level: str) -> Truth:
        """True values of an actor at every start state, and along its way from there."""
        policy = self.policy(task, level)
        question = TruthQuestion(
            task,
            Behaviour(policy, noise=0.0),
            self.profile.discount,
            pixels=self.profile.pixels if policy.reads == "pixels" else None,
            start_seeds=tuple((SEED, episode) for episode in range(self.profile.episodes)),
        )
        folder = self.cache / "truth"
        with file_lock(folder / f"{question.key()[:16]}.lock"):
            return true_value(question, cache=folder, processes=1)

    def visited(self, task: str, level: str) -> tuple[dict[str, Array], NDArray[np.int64]]:
        """Observations at every `EVERY`-th step of some noise-free rollouts (rollout-major), and those
        steps.
        """
        rollouts = self._collected(task, level, 0.0, min(self.profile.visited, self.profile.episodes))
        steps = np.arange(0, int(rollouts.lengths.min()), EVERY)
        rows = (rollouts.start_rows[:, None] + steps[None, :]).reshape(-1)
        return rollouts.observe(rows), steps

    def _collected(self, task: str, level: str, noise: float, episodes: int) -> Dataset:
        name = self.profile.actor(task, level)
        wanted = Collection(
            task,
            (Source(name, Behaviour(self.policy(task, level), noise=noise)),),
            episodes=episodes,
            pixels=self.profile.pixels,
            seed=SEED,
            processes=1,
        )
        digest = hashlib.sha256(json.dumps(wanted.settings(), sort_keys=True).encode()).hexdigest()[:12]
        folder = self.cache / "data" / f"{task}-{name.replace('/', '-')}-{digest}"
        with file_lock(folder.with_suffix(".lock")):
            return open_folder(collect(wanted, folder))
