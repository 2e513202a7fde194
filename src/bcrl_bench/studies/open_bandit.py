"""Real logs of a fashion shop, the Open Bandit Dataset, as a smoke case.

Two policies ran there, so each can be evaluated from the other's log and compared with what it earned itself.

    python -m bcrl_bench.studies.open_bandit

10,000 recommendations a file with 38 to 69 clicks prove little; the probabilities are real, and so are the
files. They lie in PyPI's obp 0.4.1, which is read as data and never run:

    pip install -c constraints.txt --no-deps obp==0.4.1

"random" shows all items alike, "bts" is Bernoulli Thompson sampling: at position k (of three) stands the item
with the k-th largest draw from the items' beta distributions, as prior_bts.yaml has them at the week's start.
The shop's went on learning, so its logged probabilities drift away from these, and its own clicks are near
what is evaluated, not at it; the random policy's are exact. Writes results/open_bandit.json; about ten
core-seconds.
"""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyarrow import csv

from bcrl.data.dataset import Array, Dataset
from bcrl.errors import BadInput
from bcrl.estimators.weighting.importance import ImportanceSampling
from bcrl_bench.asking import ask_one
from bcrl_bench.studies.study import Row, Study

CAMPAIGNS = ("men", "women", "all")
POLICIES = ("random", "bts")
POSITIONS = 3
INSTALL = "pip install -c constraints.txt --no-deps obp==0.4.1"
STUDY = Study("open_bandit", "python -m bcrl_bench.studies.open_bandit", key=("campaign", "logged_by"))


@dataclass(frozen=True, eq=False)
class ByPosition:
    """Probabilities that depend on the position alone, which the observation's first three columns say.

    Attributes:
        table: shape (positions, items).
    """

    table: NDArray[np.float64]
    reads: None = None

    def probabilities(self, observations: Array) -> NDArray[np.float64]:
        return np.asarray(self.table[np.asarray(observations)[:, :POSITIONS].argmax(axis=1)])


def folder() -> Path:
    """Where the package lies."""
    found = find_spec("obp")  # finds it without running it
    if found is None or found.origin is None:
        raise BadInput(f"The Open Bandit logs are read from PyPI's obp, which is not here: {INSTALL}")
    return Path(found.origin).parent


@cache
def read_log(campaign: str, logged_by: str) -> Dataset:
    """One file: a decision a row. Observations: the position and the visitor's four features, one hot."""
    table = csv.read_csv(folder() / "dataset" / "obd" / logged_by / campaign / f"{campaign}.csv")
    names = ["position", *[f"user_feature_{i}" for i in range(4)]]
    columns = [table[name].to_numpy(zero_copy_only=False) for name in names]
    seen = np.concatenate([_one_hot(column) for column in columns], axis=1)
    return Dataset.from_arrays(
        observations=seen,
        actions=table["item_id"].to_numpy(),
        rewards=table["click"].to_numpy().astype(np.float64),
        terminated=np.ones(len(seen), dtype=bool),
        log_prob=np.log(table["propensity_score"].to_numpy()),
        num_actions=len(prior(campaign)[0]),
    )


def _one_hot(column: Array) -> NDArray[np.float32]:
    values, code = np.unique(column, return_inverse=True)
    return np.eye(len(values), dtype=np.float32)[code]


def prior(campaign: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """alpha and beta of every item; the file has three levels, two of keys and one of numbers."""
    found: dict[tuple[str, str], list[float]] = {}
    outer = inner = ""
    text = (folder() / "policy" / "conf" / "prior_bts.yaml").read_text(encoding="utf-8")
    for line in filter(str.strip, text.splitlines()):
        word = line.strip()
        if word.startswith("- "):
            found.setdefault((outer, inner), []).append(float(word[2:]))
        elif line.startswith(" "):
            inner = word.rstrip(":")
        else:
            outer = word.rstrip(":")
    return np.array(found[campaign, "alpha"]), np.array(found[campaign, "beta"])


@cache
def policy(name: str, campaign: str, draws: int = 100_000) -> ByPosition:
    """Either policy, as probabilities by position."""
    alpha, beta = prior(campaign)
    if name == "random":
        return ByPosition(np.full((POSITIONS, len(alpha)), 1.0 / len(alpha)))
    rng, counts = np.random.default_rng(0), np.zeros((POSITIONS, len(alpha)))
    for _ in range(draws // 10_000):
        drawn = rng.beta(alpha, beta, size=(10_000, len(alpha)))
        best = np.argsort(-drawn, axis=1)[:, :POSITIONS]
        for position in range(POSITIONS):
            counts[position] += np.bincount(best[:, position], minlength=len(alpha))
    return ByPosition(counts / counts.sum(axis=1, keepdims=True))


def row(campaign: str, logged_by: str) -> Row:
    """The other policy's clicks a decision, from this log and from its own."""
    other = POLICIES[1 - POLICIES.index(logged_by)]
    log, own = read_log(campaign, logged_by), read_log(campaign, other).rewards
    estimate = ask_one(ImportanceSampling(), log, policy(other, campaign), 0.0)
    return {
        "campaign": campaign,
        "logged_by": logged_by,
        "evaluated": other,
        "clicks_in_log": int(log.rewards.sum()),
        "value": estimate.value,
        "standard_error": estimate.standard_error,
        "own_log": float(own.mean()),
        "own_standard_error": float(own.std(ddof=1) / np.sqrt(len(own))),
        "verdict": estimate.verdict,
    }


def main() -> None:
    STUDY.run([(campaign, name) for campaign in CAMPAIGNS for name in POLICIES], row)


if __name__ == "__main__":
    main()
