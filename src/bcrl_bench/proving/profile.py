"""The profile `proving`: methods, sets of families, and which cells there are.

A cell is family / regime-log / target / method, e.g. `tabular/noisy-00/greedy/fqe-0`.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.errors import BadInput, did_you_mean
from bcrl.methods import parse_method
from bcrl_bench.experiments.identity import options_of
from bcrl_bench.experiments.profile import Experiment
from bcrl_bench.proving.family import family_hash, family_names, load_family
from bcrl_bench.proving.regimes import Case, cases_of

HERE = Path(__file__).parent
SETS = ("design", "sealed", "unknowable")  # every other family is for calibration
METHODS = HERE / "methods.toml"


@dataclass(frozen=True)
class Proving:
    """Methods by name, as text; `weighing` ones are asked only where the log holds probabilities."""

    methods: dict[str, str]
    weighing: tuple[str, ...]


def load_proving(path: Path = METHODS) -> Proving:
    """The profile of a file."""
    text = tomllib.loads(path.read_text(encoding="utf-8"))
    return Proving(dict(text["methods"]), tuple(text["weighing"]))


@cache
def _sets() -> dict[str, Any]:
    return tomllib.loads((HERE / "sets.toml").read_text(encoding="utf-8"))


def set_of(family: str) -> str:
    """design, calibration, sealed or unknowable."""
    return next((name for name in SETS if family in _sets()[name]), "calibration")


def chosen_families(names: Sequence[str], *, sealed: bool) -> list[str]:
    """These families, or all that may be evaluated; sealed ones only when asked for."""
    for name in names:
        load_family(name)
    chosen = list(names) or family_names()
    if sealed:
        return chosen
    refused = [name for name in names if set_of(name) == "sealed"]
    if refused:
        raise BadInput(
            f"The family {refused[0]} is sealed: it is evaluated once, after everything is frozen. "
            "Leave it out, or pass --sealed if that time has come."
        )
    return [name for name in chosen if set_of(name) != "sealed"]


def ordered_cases(family: str) -> list[Case]:
    """A family's cases in the order in which they are run: any first N span the regimes alike."""
    cases = cases_of(load_family(family))
    rng = np.random.default_rng([11, *family.encode()])
    rank: dict[Case, tuple[int, int]] = {}
    for turn, regime in enumerate(dict.fromkeys(case.regime for case in cases)):
        own = [case for case in cases if case.regime == regime]
        rank |= {own[i]: (place, turn) for place, i in enumerate(rng.permutation(len(own)))}
    return sorted(cases, key=rank.__getitem__)


def experiment_of(case: Case, method: str) -> Experiment:
    """The cell of a case and a method."""
    return Experiment(case.family, f"{case.regime}-{case.log:02d}", case.target, method, 0)


def case_of(experiment: Experiment) -> Case:
    """The case of a cell."""
    cases = cases_of(load_family(experiment.task))
    found = [case for case in cases if experiment_of(case, experiment.method) == experiment]
    if not found:
        raise BadInput(f"The proving ground has no cell {experiment.name}.")
    return found[0]


def experiments(
    proving: Proving, families: Sequence[str], methods: Sequence[str], cases: int | None
) -> list[Experiment]:
    """Cells in the order in which they are run: the first case of every family, then the second, ..."""
    for name in methods:
        if name not in proving.methods:
            raise BadInput(f"No method {name!r} in the profile. {did_you_mean(name, proving.methods)}")
    turns = [(turn, case) for name in families for turn, case in enumerate(ordered_cases(name)[:cases])]
    return [
        experiment_of(case, method)
        for _, case in sorted(turns, key=lambda pair: pair[0])
        for method in methods or proving.methods
        if method not in proving.weighing or has_log_prob(case)
    ]


@cache
def _discrete(family: str) -> bool:
    return load_family(family).make(0).num_actions is not None


def has_log_prob(case: Case) -> bool:
    """Half of a mixture is logged by the target itself, which has no density if it is deterministic and
    continuous.
    """
    return case.regime != "mixture" or _discrete(case.family)


def settings_of_cell(proving: Proving, experiment: Experiment) -> dict[str, Any]:
    """What a cell's number depends on, besides its name."""
    text = proving.methods[experiment.method]
    options = options_of(parse_method(text), pixels=True)  # some families are images
    return {"family": family_hash(experiment.task), "method": text, "options": options}
