"""From a table of decisions to a value: patients get a dose of 0, 1 or 2 each day; relief is the reward.

Courses of one patient are not independent, so the patient is the `cluster`; intervals use it.
"""

import csv
from pathlib import Path

import numpy as np

import bcrl

generator = np.random.default_rng(0)


def write(path: Path) -> None:
    """120 patients with two courses each; the logged doctors gave doses at random."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["patient", "course", "day", "pain", "dose", "relief", "left", "cut"])
        for course in range(240):
            pain = generator.uniform(4, 8)
            for day in range(20):
                dose = int(generator.integers(3))
                relief = min(pain, 1.5 * dose) - 0.4 * dose
                left = bool(pain < 4 and generator.random() < 0.3)  # the course ends: nothing comes after
                cut = day == 19 and not left  # the record ends: the patient is still there
                table.writerow([course // 2, course, day, round(pain, 3), dose, round(relief, 3), left, cut])
                pain = float(np.clip(pain + generator.normal(0.6, 0.5) - 0.6 * dose, 0, 10))
                if left:
                    break


def by_pain(observations: np.ndarray) -> np.ndarray:
    """A rule that nobody has tried: a high dose for pain above 5, a low one above 2, else none."""
    pain = observations[:, 0]
    return np.where(pain > 5, 2, np.where(pain > 2, 1, 0))


write(Path("visits.csv"))
columns = {"observation": ["pain"], "action": "dose", "reward": "relief", "episode": "course"}
columns |= {"step": "day", "terminated": "left", "truncated": "cut", "cluster": "patient"}
dataset = bcrl.load_dataset("visits.csv", columns=columns)
method = bcrl.LSPE(bcrl.RandomFeatures(dim=100))
comparison = bcrl.compare(dataset, {"rule": by_pain}, discount=0.8, methods={"random": method})
estimate, difference = comparison.estimates["rule"]["random"], comparison.differences["rule"]["random"]

print(f"{dataset.num_episodes} courses of {len(np.unique(dataset.cluster))} patients, {len(dataset)} days")
print(f"logged doctors {comparison.logged.value:.2f}")
print(f"the rule       {estimate.value:.2f} ({estimate.interval.low:.2f} to {estimate.interval.high:.2f})")
print(
    f"better by {difference.value:+.2f}, at least {difference.lower_bound:+.2f}; verdict: {estimate.verdict}"
)
