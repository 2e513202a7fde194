"""Cases with their logs, truths and marks, made once a machine and cached by content.

    .bcrl/proving/<family>/<key>.npz        rollouts of a policy in a world
    .bcrl/proving/<family>/<key>/           a log, in bcrl's own folder
    .bcrl/proving/<family>/<key>.json       a case: truth, mark, scale, V at visited states for every tenth;
                                            from truths.jsonl where it is known already

Keys hash the family's file and what the thing depends on. Locks let several processes prepare at once.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.build.combine import concatenate
from bcrl.data.dataset import Array, Dataset
from bcrl.data.storage.folder import open_folder, save, write_json
from bcrl.inference.contrast import discounted_returns
from bcrl_bench.processes import file_lock
from bcrl_bench.proving import truth as truths
from bcrl_bench.proving.family import Family, family_hash, load_family
from bcrl_bench.proving.kept_truths import kept_truths
from bcrl_bench.proving.marks import mark_of
from bcrl_bench.proving.regimes import Case, loggers, policy_of, supports
from bcrl_bench.proving.truth import Rollouts, Truth
from bcrl_bench.proving.world import Observations, Policy, World, record, rows_of

FORMAT = 1  # part of every key: raise it when the numbers change their meaning
EVERY = 10  # cases between two whose V is known at visited states too


@dataclass(frozen=True, eq=False)
class PreparedCase:
    """All that a method's answer is held against.

    Attributes:
        case: the question.
        dataset: the log.
        policy: the target.
        truth: its true value.
        mark: covered, partly or not, with the shares behind it.
        scale: the log's mean discounted sum of |reward|.
        logged: the log's mean discounted return.
        visited: for every tenth case, observations with V and its standard error there.
    """

    case: Case
    dataset: Dataset
    policy: Policy
    truth: Truth
    mark: dict[str, Any]
    scale: float
    logged: float
    visited: tuple[Observations, NDArray[np.float64], NDArray[np.float64]] | None


def prepare(case: Case, cache: Path) -> PreparedCase:
    """The case, from the cache or made now."""
    maker = _Maker(case, cache)
    path = maker.path("case", asdict(case)).with_suffix(".json")
    with file_lock(path.with_suffix(".lock")):
        if not path.is_file():
            write_json(path, kept_truths().get(path.stem) or maker.facts())
    facts = json.loads(path.read_text(encoding="utf-8"))
    visited = None
    if facts["visited"] is not None:
        rows, values, errors = (np.array(facts["visited"][k]) for k in ("rows", "values", "errors"))
        seen = rows_of(maker.rollouts(0).visits.observations, rows.astype(np.int64))
        visited = (seen, values.astype(np.float64), errors.astype(np.float64))
    return PreparedCase(
        case,
        maker.log(),
        maker.target,
        Truth(**facts["truth"]),
        facts["mark"],
        facts["scale"],
        facts["logged"],
        visited,
    )


def stepped_facts(case: Case, cache: Path) -> dict[str, dict[str, Any]]:
    """What the cache knows of a prepared case, by its name there; nothing of a world with exact values."""
    maker = _Maker(case, cache)
    if hasattr(maker.world, "exact_value"):
        return {}
    path = maker.path("case", asdict(case)).with_suffix(".json")
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))}


class _Maker:
    """Makes what a case needs; worlds and policies are cheap to make, rollouts and logs are stored."""

    def __init__(self, case: Case, cache: Path) -> None:
        self.case = case
        self.family: Family = load_family(case.family)
        self.world: World = self.family.make(case.world)
        self.target: Policy = policy_of(self.family, self.world, case.policy)
        self.folder = cache / case.family

    def path(self, kind: str, depends: dict[str, Any]) -> Path:
        """Where something lies that depends on the family's file and on this."""
        content = [FORMAT, family_hash(self.case.family), np.__version__, kind, depends]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]
        return self.folder / f"{kind}-{digest}"

    def rollouts(self, part: int) -> Rollouts:
        """Stored rollouts of the target; every part has as many as all before it."""
        exact = hasattr(self.world, "exact_value")
        num = truths.KEPT if exact else max(self.family.rollouts, truths.KEPT) * 2 ** max(part - 1, 0)
        depends = {"world": self.case.world, "policy": self.case.policy, "part": part}
        path = self.path("rollouts", depends).with_suffix(".npz")
        with file_lock(path.with_suffix(".lock")):
            seed = [FORMAT, self.case.world, part, *self.case.policy.encode()]
            return truths.stored_rollouts(path, self.family, self.world, self.target, num, seed)

    def truth(self, scale: float) -> Truth:
        """Exact, or by as many rollouts as it takes."""
        case = self.case
        if hasattr(self.world, "exact_value"):
            value = self.world.exact_value(self.target, case.discount, case.horizon)
            return Truth(float(value), 0.0, 0)
        parts = [self.rollouts(0)]
        found = truths.value_by_rollouts(self.family, parts, case.discount, case.horizon)
        while found.standard_error > truths.PRECISION * scale and len(parts) <= truths.DOUBLINGS:
            parts.append(self.rollouts(len(parts)))
            found = truths.value_by_rollouts(self.family, parts, case.discount, case.horizon)
        return found

    def log(self) -> Dataset:
        """The log: an equal share of episodes by each logging policy, labelled with who made it."""
        case = self.case
        names = loggers(case.regime, case.policy)
        depends = {"log": case.log, "world": case.world, "episodes": case.episodes, "by": names}
        path = self.path("log", depends)
        with file_lock(path.with_suffix(".lock")):
            if not path.is_dir():
                save(self._logged(names), path)
            return open_folder(path)

    def _logged(self, names: tuple[str, ...]) -> Dataset:
        counts = [len(part) for part in np.array_split(np.arange(self.case.episodes), len(names))]
        parts = [
            record(
                self.world,
                policy_of(self.family, self.world, name),
                count,
                self.family.length,
                np.random.default_rng([FORMAT, 1 + self.case.log, *name.encode()]),
            )
            for name, count in zip(names, counts, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        if any(part.log_prob is None for part in parts):  # a deterministic policy has no density
            parts = [replace(part, log_prob=None) for part in parts]
        return replace(concatenate(parts), behaviour=np.repeat(names, counts))

    def facts(self) -> dict[str, Any]:
        """Truth, mark, scale, logged value, and V at visited states."""
        case, log = self.case, self.log()
        size = replace(log, rewards=np.abs(log.rewards))
        scale = float(discounted_returns(size, case.discount, case.horizon).mean())
        return {
            "case": asdict(case),
            "truth": asdict(self.truth(scale)),
            "mark": self._mark(log),
            "scale": scale,
            "logged": float(discounted_returns(log, case.discount, case.horizon).mean()),
            "episodes": log.num_episodes,
            "transitions": len(log),
            "visited": self._visited() if case.number % EVERY == 0 else None,
        }

    def _mark(self, log: Dataset) -> dict[str, Any]:
        visits, case = self.rollouts(0).visits, self.case
        names = loggers(case.regime, case.policy)
        behaviours = [policy_of(self.family, self.world, name) for name in names]
        shown = supports(self.world, behaviours, visits.observations, visits.actions)
        weights = visits.weights(self.family.longest, case.discount, case.horizon)
        logged = self._place(log.natural(log.observe(log.rows)))
        return asdict(mark_of(shown, self._place(visits.observations), weights, logged, log.episode_of))

    def _place(self, observations: Observations) -> NDArray[np.float64]:
        place = getattr(self.world, "place", None)
        if place is not None:
            return np.asarray(place(observations), dtype=np.float64)
        parts: list[Array] = list(observations.values()) if isinstance(observations, dict) else [observations]
        return np.concatenate([np.reshape(p, (len(p), -1)) for p in parts], axis=1).astype(np.float64)

    def _visited(self) -> dict[str, Any]:
        found = truths.values_at_places(
            self.family, self.world, self.target, self.rollouts(0), self.case.discount, self.case.horizon
        )
        errors = [None if np.isnan(error) else error for error in found[2].tolist()]
        return {"rows": found[0].tolist(), "values": found[1].tolist(), "errors": errors}
