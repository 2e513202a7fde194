"""START HERE. One question, two functions: `evaluate` one policy, `compare` several.

check inputs -> every method's estimates -> checks -> verdicts -> a comparison with the logging policy
"""

import dataclasses
import hashlib
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bcrl.comparison import Comparison, picture
from bcrl.data.dataset import Array, Dataset
from bcrl.data.sources import load_dataset
from bcrl.data.starts import Starts, starts_of
from bcrl.data.storage.folder import content_hash
from bcrl.doctor import Finding, examine
from bcrl.doctor.policy import examine_policy
from bcrl.errors import BadInput
from bcrl.estimate import Estimate
from bcrl.inference.contrast import agreement, difference_to, episodes_to_halve, probability_best
from bcrl.inference.logged import logged_value
from bcrl.methods import parse_method
from bcrl.policies import load_policy
from bcrl.policies.policy import AnyPolicy, resolve_policy
from bcrl.training import Run, silent

Show = Callable[[Mapping[str, Any]], None]


class Estimator(Protocol):
    """A method: a frozen dataclass of hyper-parameters with this one public method."""

    def estimate(
        self,
        dataset: Dataset,
        policies: Mapping[str, AnyPolicy],
        *,
        discount: float,
        horizon: int | None,
        starts: Starts,
        seed: int,
        run: Run,
    ) -> dict[str, Estimate]: ...


def evaluate(
    dataset: Dataset | str | Path,
    policy: Any,  # noqa: ANN401 - a policy, a callable, a module or a path
    *,
    discount: float,
    method: Estimator | str = "bcrl",
    starts: Array | Mapping[str, Array] | None = None,
    horizon: int | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    show: Show = silent,
    trust: bool = False,
) -> Estimate:
    """What a policy would earn, from logged data alone.

    Args:
        dataset: a `Dataset`, or a path that `load_dataset` reads.
        policy: a policy, any callable observation -> action(s), a torch module, or a path that `load_policy` reads.
        discount: in [0, 1); 1 is allowed with a horizon. It has no default: it is part of the question.
        method: an estimator, or its text, e.g. ``"fqe"`` or ``"LSPE(BellmanComplete(dim=64))"``.
        starts: start states; None takes the first observation of every episode.
        horizon: value of this many steps; None for the whole future.
        seed: the one seed that all randomness comes from.
        folder: keep checkpoints here, so that a killed run goes on where it was.
        show: called with progress.
        trust: load policy files that can run code.

    Returns:
        The estimate: discounted return from the start states in the reward's own unit, interval, checks, verdict.
    """
    comparison = compare(
        dataset,
        {"policy": policy},
        discount=discount,
        methods={"method": method},
        starts=starts,
        horizon=horizon,
        seed=seed,
        folder=folder,
        show=show,
        trust=trust,
    )
    return comparison.estimates["policy"]["method"]


def compare(
    dataset: Dataset | str | Path,
    policies: Mapping[str, Any],
    *,
    discount: float,
    methods: Mapping[str, Estimator | str] | None = None,
    starts: Array | Mapping[str, Array] | None = None,
    horizon: int | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    show: Show = silent,
    trust: bool = False,
    truth: Mapping[str, Mapping[str, float]] | None = None,
    command: str = "",
) -> Comparison:
    """Several policies by several methods, beside the logging policy. Work is shared between policies.

    Args:
        dataset: as in `evaluate`, as are the arguments not listed here.
        policies: by name.
        methods: by name; None takes BCRL with the default recipe.
        truth: known values by policy name, e.g. ``{"new": {"value": 61.0, "standard_error": 0.4}}``; shown, never used.
        command: what to print as the command that made this.
    """
    _check_question(discount, horizon, policies)
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    chosen = {
        name: parse_method(method) if isinstance(method, str) else method
        for name, method in ({"bcrl": "bcrl"} if methods is None else methods).items()
    }
    given = {
        name: load_policy(policy, trust=trust, num_actions=data.num_actions)
        for name, policy in policies.items()
    }
    findings = check_data(data, given)
    loaded = {name: resolve_policy(data, policy) for name, policy in given.items()}
    begin = starts_of(data, starts)
    digest = content_hash(data)
    origin = {"seed": seed, "versions": _versions(), "dataset": digest}
    estimates: dict[str, dict[str, Estimate]] = {name: {} for name in loaded}
    for name, method in chosen.items():
        key = _key(digest, loaded, discount, horizon, method, seed)
        run = Run(folder=None if folder is None else Path(folder) / key, show=show)
        clock = time.perf_counter()
        answers = method.estimate(
            data, loaded, discount=discount, horizon=horizon, starts=begin, seed=seed, run=run
        )
        seconds = time.perf_counter() - clock
        for policy, answer in answers.items():
            provenance = {**origin, **answer.provenance, "policy": _policy_digest(loaded[policy])}
            timings = {**answer.timings, "total": seconds / len(answers)}
            estimates[policy][name] = dataclasses.replace(answer, provenance=provenance, timings=timings)
    logged = logged_value(data, discount=discount, horizon=horizon)
    return Comparison(
        estimates=estimates,
        logged=logged,
        differences={} if logged is None else _table(estimates, lambda e: difference_to(e, logged)),
        probability_best={
            name: probability_best({policy: row[name] for policy, row in estimates.items()}, seed)
            for name in chosen
        },
        episodes_to_halve=_table(estimates, lambda e: episodes_to_halve(e, data.num_episodes)),
        checks={policy: agreement(row) for policy, row in estimates.items()},
        truth=dict(truth or {}),
        dataset=_summary(data, digest, findings),
        discount=discount,
        horizon=horizon,
        command=command,
        versions=_versions(),
        seed=seed,
    )


def check_data(dataset: Dataset, policies: Mapping[str, AnyPolicy]) -> list[Finding]:
    """The doctor's findings before any training; an error stops here, with its first line."""
    findings = examine(dataset)
    for policy in policies.values():
        findings += examine_policy(dataset, policy)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        more = f" ({len(errors) - 1} more: run bcrl doctor.)" if len(errors) > 1 else ""
        raise BadInput(f"{errors[0].what} Where: {errors[0].where}. {errors[0].do}{more}")
    return findings


def _check_question(discount: float, horizon: int | None, policies: Mapping[str, Any]) -> None:
    if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0.0 <= discount <= 1.0:
        raise BadInput(f"discount is {discount!r}; expected a number in [0, 1), e.g. 0.99.")
    if discount == 1.0 and horizon is None:
        raise BadInput(
            "discount 1 has no finite value without an end; pass horizon=H, or a discount below 1."
        )
    if horizon is not None and (isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1):
        raise BadInput(f"horizon is {horizon!r}; expected a whole number of steps, at least 1.")
    if not policies:
        raise BadInput("No policy to evaluate; pass at least one, e.g. {'new': policy}.")


def _table(
    estimates: Mapping[str, Mapping[str, Estimate]], make: Callable[[Estimate], Any]
) -> dict[str, dict[str, Any]]:
    return {policy: {name: make(e) for name, e in row.items()} for policy, row in estimates.items()}


def _key(
    digest: str,
    policies: Mapping[str, AnyPolicy],
    discount: float,
    horizon: int | None,
    method: object,
    seed: int,
) -> str:
    """Names a computation by what goes into it, so that a checkpoint never serves another one.

    A policy without a file is known by its name only; give another folder when its code changes.
    """
    names = [(name, _policy_digest(policy)) for name, policy in policies.items()]
    text = repr((digest, names, float(discount), horizon, repr(method), seed, _versions()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _policy_digest(policy: AnyPolicy) -> str:
    """The file's contents and what `load_policy` was told: with other options it is another policy."""
    digest = getattr(policy, "digest", None)
    told = getattr(policy, "loaded_with", None)
    return (str(digest) if digest else type(policy).__name__) + (f" {dict(told)}" if told else "")


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("bcrl", "torch", "numpy", "scipy")}
    return packages | {"python": platform.python_version()}


def _summary(dataset: Dataset, digest: str, findings: list[Finding]) -> dict[str, Any]:
    return {
        "name": dataset.source,
        "episodes": dataset.num_episodes,
        "transitions": len(dataset),
        "longest_episode": int(dataset.lengths.max()),
        "keys": {key: list(value.shape[1:]) for key, value in dataset.observations.items()},
        "reward_range": [float(dataset.rewards.min()), float(dataset.rewards.max())],
        "hash": digest,
        "findings": [{"level": f.severity, "what": f.what, "where": f.where, "do": f.do} for f in findings],
        "frames": _frames(dataset),
    }


def _frames(dataset: Dataset, count: int = 6) -> list[str]:
    """A few single frames of pixel data, from one episode after another, for the page."""
    shown = [key for key in dataset.pixel_keys if dataset.observations[key].shape[-1] in (1, 3)]
    if not shown:
        return []
    rows = np.linspace(0, len(dataset) + dataset.num_episodes - 1, count).astype(np.int64)
    return [picture(np.asarray(dataset.observations[shown[0]][row])) for row in rows]
