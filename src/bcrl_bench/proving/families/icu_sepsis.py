"""Sepsis in intensive care: 713 states of patients, 25 doses, made from MIMIC-III by PyPI's icu-sepsis.

The reward is 1 for a discharge and 0 for a death. Observations are the means of the patients in a state (47
measurements), which differ for all states. Policies:

    medium   the clinicians                       poor    half clinicians, half the worst of their actions
    good     half clinicians, half optimal        other   optimal among the clinicians' actions, planned

Only the package's table is read: its code wants `gym`, which nothing else here does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bcrl.errors import BadInput
from bcrl_bench.proving.arrivals import Arrivals, arrivals
from bcrl_bench.proving.family import Family
from bcrl_bench.proving.tables import Table
from bcrl_bench.worlds.tabular import TablePolicy

DEATH, SURVIVAL, AFTER = 713, 714, 715  # the terminal states; three rows of the clinicians' table are empty
INSTALL = "pip install -c constraints.txt --no-deps icu-sepsis==2.0.1"


@dataclass(frozen=True, eq=False, kw_only=True)
class Sepsis(Arrivals):
    """The clinicians' table, and what is planned within it.

    Attributes:
        clinicians: action probabilities, shape (S, A).
    """

    clinicians: Table

    @cached_property
    def policies(self) -> Mapping[str, TablePolicy]:
        values, actions = self.optimal(), np.eye(self.num_actions)
        best = actions[np.where(self.clinicians > 0, values, -np.inf).argmax(axis=1)]
        worst = actions[np.where(self.clinicians > 0, values, np.inf).argmin(axis=1)]
        tables = {
            "poor": (self.clinicians + worst) / 2,
            "medium": self.clinicians,
            "good": (self.clinicians + best) / 2,
            "other": best,
        }
        return {name: TablePolicy(table, self.codes) for name, table in tables.items()}

    def optimal(self) -> Table:
        """Action values of the best policy that keeps to the clinicians' actions, shape (S, A)."""
        values = np.zeros(self.reward.shape)
        for _ in range(2_000):
            best = np.where(self.clinicians > 0, values, -np.inf).max(axis=1)
            following = self.reward + self.planned * self._onward(best)
            if np.abs(following - values).max() < 1e-10:
                return following
            values = following
        raise RuntimeError(f"Planning with discount {self.planned} did not settle in 2,000 rounds.")


@cache
def make(seed: int) -> Sepsis:
    """The one world there is; the seed does not matter."""
    del seed
    with np.load(_table()) as stored:
        transition, first = stored["tx_mat"], stored["d_0"]
        clinicians, codes = stored["expert_policy"].copy(), stored["state_cluster_centers"].copy()
    terminal = np.isin(np.arange(len(first)), (DEATH, SURVIVAL, AFTER))
    clinicians[terminal] = 1.0 / clinicians.shape[1]
    codes[DEATH], codes[SURVIVAL], codes[AFTER] = -20.0, 20.0, 40.0  # all zero in the file: told apart
    arriving = (np.arange(len(first)) == SURVIVAL).astype(np.float64)
    fields = arrivals(transition, arriving, terminal, first, codes)
    return Sepsis(**fields, reward_std=0.0, planned=0.99, clinicians=clinicians)


def _table() -> Path:
    found = find_spec("icu_sepsis")  # finds the package without running it
    if found is None or found.origin is None:
        raise BadInput(
            f"The family icu_sepsis reads the table of PyPI's icu-sepsis, which is not here: {INSTALL}"
        )
    return Path(found.origin).parent / "envs" / "assets" / "dynamics.npz"


FAMILY = Family(
    name="icu_sepsis", make=make, files=("../tables.py", "../arrivals.py"),
    # noise: under a twentieth, so that the logging policy itself counts as covered
    length=40, noise=0.04, episodes=(100, 200, 350, 500),
    discounts=(0.95, 0.99, 0.999, 1.0), horizons=(None, 12), cases=40, worlds=1,
    longest=150,
)  # fmt: skip
