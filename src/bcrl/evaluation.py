"""START HERE. One question, two functions: `evaluate` one policy, `compare` several.

check inputs -> build the Question -> ask every method -> a comparison with the logging policy
"""

import dataclasses
import hashlib
import json
import math
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bcrl import __version__
from bcrl.cohorts import by_cohort
from bcrl.comparison import Comparison, picture
from bcrl.data.dataset import Array, Dataset, Ends
from bcrl.data.sources import load_dataset
from bcrl.data.sources.cells import Missing
from bcrl.data.storage.contents import content_hash
from bcrl.doctor import Finding, examine, stop_at_errors
from bcrl.doctor.findings import Bearing
from bcrl.errors import BadInput, did_you_mean
from bcrl.estimate import Estimate
from bcrl.estimators.auto import Auto
from bcrl.inference.budget import with_budgets, with_decisions
from bcrl.inference.checks import doubts, possible
from bcrl.inference.contrast import (
    agreement,
    difference_to,
    episodes_to_halve,
    known_value,
    logged_value,
    not_alike,
    possible_returns,
    probability_best,
)
from bcrl.methods import Estimator, parse_method, settings_of
from bcrl.policies import load_policy
from bcrl.policies.policy import AnyPolicy, resolve_policy
from bcrl.progress import ProgressLine, watched
from bcrl.question import Question, Target, check_numbers
from bcrl.training import Crew, Pace, Run, silent
from bcrl.writing import writable_folder

Show = Callable[[Mapping[str, Any]], None]


def evaluate(
    dataset: Any,  # noqa: ANN401 - a Dataset, a path or a table
    policy: Any,  # noqa: ANN401 - a policy, a callable, a module or a path
    *,
    discount: float,
    method: Estimator | str | None = None,
    starts: Array | Mapping[str, Array] | None = None,
    horizon: int | None = None,
    ends: Ends | None = None,
    columns: Mapping[str, Any] | None = None,
    missing: Missing | None = None,
    trained_on_log: bool = False,
    level: float = 0.95,
    seed: int = 0,
    folder: str | Path | None = None,
    save_every: float = 30.0,
    show: Show | None = None,
    quiet: bool = False,
    trust: bool = False,
    device: str = "auto",
    tensorboard: str | Path | None = None,
    representation: str | Path | None = None,
    rollouts: Any = None,  # noqa: ANN401 - a Dataset, a path or a table
    next_steps: bool | None = False,
    ray: str | None = None,
    workers_per_training: int = 1,
) -> Estimate:
    """What a policy would earn, from logged data alone.

    Args:
        dataset: a `Dataset`, a path that `load_dataset` reads, or a pandas, polars or pyarrow table.
        policy: a policy, any callable observation -> action(s), a torch module, a scikit-learn estimator or
            pipeline, a lookup table, or a path that `load_policy` reads.
        discount: in [0, 1); 1 is allowed with a horizon. It has no default: it is part of the question.
        method: an estimator, or its text, e.g. ``"fqe"`` or ``"LSPE(BellmanComplete(dim=64))"``; None takes
            `Auto`: a quick answer, and BCRL where that is not sure enough.
        starts: start states; None takes the first observation of every episode.
        horizon: value of this many steps; None for the whole future.
        ends: for a path or a table, what the ends of episodes are that nobody marked; as in
            `Dataset.from_arrays`.
        columns: for a path or a table, which column is what, e.g. ``{"action": "treatment"}``
            (docs/data.md); what is left out is found by its name, and said.
        missing: for a table, what to do about observations that are not there: "refuse", "forward" (carry
            the episode's last value forward) or "mean".
        trained_on_log: the policy was made from this log, so its value here flatters it: never trusted.
        level: what the intervals promise.
        seed: the one seed that all randomness comes from.
        folder: keep checkpoints here, so that a killed run goes on where it was.
        save_every: seconds between two checkpoints of a training; 0 keeps one wherever it measures.
        show: called with progress; None shows it on standard error where a person looks (a terminal, a
            notebook).
        quiet: show no progress.
        trust: load policy files that can run code.
        device: what networks are trained on, e.g. "cpu" or "cuda"; "auto" takes a GPU where there is one.
        tensorboard: write TensorBoard event files of every training into this folder.
        representation: a folder that `save_representation` wrote: LSPE on those features, and nothing is
            trained.
        rollouts: episodes of the policy itself, if there are some: LSPE's estimate then has `theory`,
            kappa(p0) and the right-hand sides of the paper's three theorems. Its value does not use them.
        next_steps: where the value is not trusted, bounds and a trial are always in `estimate.next_steps`;
            with True the guarded policy and the largest trusted blend too (five times a `Consensus`). None
            leaves all of it out, for who reads nothing but the value.
        ray: address of a Ray cluster that shares the work ("auto": the one of this machine); None does it
            here (docs/scale.md).
        workers_per_training: workers of the cluster that share one training of a representation.

    Returns:
        The estimate: discounted return from the start states in the reward's own unit, interval, checks,
            verdict.
    """
    comparison = compare(
        dataset,
        {"policy": policy},
        discount=discount,
        methods=None if method is None else {"method": method},
        starts=starts,
        horizon=horizon,
        ends=ends,
        columns=columns,
        missing=missing,
        trained_on_log=trained_on_log,
        level=level,
        seed=seed,
        folder=folder,
        save_every=save_every,
        show=show,
        quiet=quiet,
        trust=trust,
        device=device,
        tensorboard=tensorboard,
        representation=representation,
        rollouts=None if rollouts is None else {"policy": rollouts},
        next_steps=next_steps,
        ray=ray,
        workers_per_training=workers_per_training,
    )
    (estimate,) = comparison.estimates["policy"].values()
    return dataclasses.replace(estimate, next_steps=comparison.next_steps.get("policy", ()))


def compare(
    dataset: Any,  # noqa: ANN401 - a Dataset, a path or a table
    policies: Mapping[str, Any],
    *,
    discount: float,
    methods: Mapping[str, Estimator | str] | None = None,
    starts: Array | Mapping[str, Array] | None = None,
    horizon: int | None = None,
    ends: Ends | None = None,
    columns: Mapping[str, Any] | None = None,
    missing: Missing | None = None,
    cohort: str | None = None,
    trained_on_log: bool = False,
    level: float = 0.95,
    seed: int = 0,
    folder: str | Path | None = None,
    save_every: float = 30.0,
    show: Show | None = None,
    quiet: bool = False,
    trust: bool = False,
    device: str = "auto",
    tensorboard: str | Path | None = None,
    representation: str | Path | None = None,
    rollouts: Mapping[str, Any] | None = None,
    next_steps: bool | None = False,
    ray: str | None = None,
    workers_per_training: int = 1,
    truth: Mapping[str, Mapping[str, float]] | None = None,
    command: str = "",
    title: str = "",
) -> Comparison:
    """Several policies by several methods, beside the logging policy. Work is shared between policies.

    Args:
        dataset: as in `evaluate`, as are the arguments not listed here.
        policies: by name.
        rollouts: episodes of these policies, by the policy's name, as in `evaluate`.
        methods: by name; None takes `Auto`, as in `evaluate`.
        cohort: for a table, the column of groups (a ward, an age group) to look at one by one, as guardrails.
        truth: known values by policy name, e.g. ``{"new": {"value": 61.0, "standard_error": 0.4}}``; shown,
            never used.
        command: what to print as the command that made this.
        title: of the page; the data's name if left out.
    """
    check_numbers(discount, horizon, level, seed)
    if not save_every >= 0.0:
        raise BadInput(f"save_every is {save_every}; expected a number of seconds, at least 0.")
    chosen = _chosen(methods, representation, theory=rollouts is not None)
    data = read_data(dataset, ends=ends, columns=columns, missing=missing, cohort=cohort)
    _refuse_too_small(chosen, data)
    given = {
        name: load_policy(policy, trust=trust, num_actions=data.num_actions)
        for name, policy in policies.items()
    }
    findings = examine(data, given)
    if trained_on_log:
        findings.append(TRAINED_ON_LOG)
    stop_at_errors(findings)
    for place in (folder, tensorboard):
        if place is not None:
            writable_folder(Path(place))
    question = Question.of(
        data,
        {name: resolve_policy(data, policy) for name, policy in given.items()},
        discount=discount,
        horizon=horizon,
        starts=starts,
        level=level,
        seed=seed,
    )
    digest = content_hash(data)
    logged = logged_value(data, discount=discount, horizon=horizon, level=level)
    withheld = not_alike(question)
    estimates: dict[str, dict[str, Estimate]] = {name: {} for name in question.targets}
    runs = {}
    for name, method in chosen.items():
        run = Run(device=device, tensorboard=_under(tensorboard, name), save_every=save_every)
        if folder is not None:
            key = identity(question, digest, method)
            run = dataclasses.replace(run, folder=Path(folder) / key, key=key)
        runs[name] = run
    with _crew(ray, workers_per_training) as crew:
        replies = _ask_all(chosen, question, runs, digest, crew, _shown(show, quiet))
        for name, answers in replies.items():
            for policy, estimate in answers.items():
                estimates[policy][name] = estimate
    if rollouts is not None:
        estimates = _with_theory(estimates, question, rollouts)
    known = None if withheld else logged
    for policy, target in question.targets.items():
        budgeted = with_budgets(estimates[policy], question, target)
        estimates[policy] = {
            name: _with_known(_with_doubts(estimate, policy, chosen[name], findings), target, known)
            for name, estimate in budgeted.items()
        }
    comparison = Comparison(
        estimates=estimates,
        logged=logged,
        differences={}
        if logged is None or withheld
        else _table(estimates, lambda e: difference_to(e, logged, level)),
        withheld=withheld,
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
        level=level,
        command=command,
        title=title,
        versions=_versions(),
        seed=seed,
    )
    answered = with_decisions(comparison)
    if next_steps is not None:
        answered = _with_next_steps(answered, question, known, next_steps, findings)
    if data.cohort is not None:
        answered = dataclasses.replace(answered, cohorts=by_cohort(question, findings))
    return answered


def _with_theory(
    estimates: dict[str, dict[str, Estimate]], question: Question, rollouts: Mapping[str, Any]
) -> dict[str, dict[str, Estimate]]:
    """The estimates; where rollouts were given, with what the theorems say of methods linear in phi."""
    from bcrl.estimators.lspe.theorems import has_theory, theory_of

    out = {policy: dict(row) for policy, row in estimates.items()}
    for policy, given in rollouts.items():
        if policy not in out:
            raise BadInput(f"rollouts= names {policy!r}. {did_you_mean(policy, out)}")
        episodes = read_data(given)
        linear = [name for name, estimate in out[policy].items() if has_theory(estimate)]
        if not linear:
            raise BadInput("rollouts= goes with LSPE: the paper's theorems are about it. Add --method bcrl.")
        for name in linear:
            theory = theory_of(out[policy][name], question.targets[policy], episodes)
            out[policy][name] = dataclasses.replace(out[policy][name], theory=theory)
    return out


def _with_next_steps(
    comparison: Comparison, question: Question, known: Estimate | None, dial: bool, findings: list[Finding]
) -> Comparison:
    """The comparison with what can be said and done about policies that are not trusted."""
    from bcrl.next_steps.advice import with_advice

    speaking = {policy: comparison.headline(policy)[0] for policy in comparison.policies}
    steps = with_advice(
        {policy: comparison.estimates[policy][method] for policy, method in speaking.items()},
        question,
        {policy: comparison.differences.get(policy, {}).get(method) for policy, method in speaking.items()},
        known,
        dial=dial,
        findings=findings,
    )
    return dataclasses.replace(comparison, next_steps=steps)


TRAINED_ON_LOG = Finding(
    "warning",
    "The policy was made from this log, so it knows the log's luck, and its value here is too high.",
    "the policy",
    "Judge it on episodes that it was not made from: keep some patients or visitors aside before training.",
    Bearing("made from this log"),
)


def read_data(dataset: Any, **options: Any) -> Dataset:  # noqa: ANN401 - what load_dataset takes
    """The dataset, or what its path or its table leads to; options that are None were not given."""
    given = {name: value for name, value in options.items() if value is not None}
    if not isinstance(dataset, Dataset):
        return load_dataset(dataset, **given)
    if given:
        name = next(iter(given))
        raise BadInput(f"{name}= goes with a path or a table; for arrays, see Dataset.from_arrays.")
    return dataset


def _shown(show: Show | None, quiet: bool) -> Show:
    """Who hears of progress: whom the caller named, else a person at a terminal or a notebook."""
    if quiet:
        return silent
    if show is not None:
        return show
    return ProgressLine() if watched() else silent


def _chosen(
    methods: Mapping[str, Estimator | str] | None, representation: str | Path | None, *, theory: bool
) -> dict[str, Estimator]:
    """The methods to ask, by name; where the paper's theorems are asked for, the one that they are about."""
    if representation is not None:
        if methods is not None:
            raise BadInput(
                "representation= goes with the default method; beside others pass "
                "LSPE(SavedFeatures(folder))."
            )
        from bcrl.estimators.lspe.method import LSPE
        from bcrl.representations.stored import SavedFeatures

        return {"bcrl": LSPE(SavedFeatures(representation))}
    if methods is not None:
        return {name: parse_method(one) if isinstance(one, str) else one for name, one in methods.items()}
    return {"bcrl": parse_method("bcrl")} if theory else {"auto": Auto()}


@contextmanager
def _crew(address: str | None, per_training: int) -> Iterator[Crew | None]:
    """The Ray cluster that shares the work, while this lasts."""
    if address is None:
        yield None
        return
    from bcrl.scale.cluster import cluster

    with cluster(address, _versions, per_training=per_training) as crew:
        yield crew


def _ask_all(
    methods: Mapping[str, Estimator],
    question: Question,
    runs: Mapping[str, Run],
    digest: str,
    crew: Crew | None,
    show: Show,
) -> dict[str, dict[str, Estimate]]:
    """Every method's answers. With a crew, methods that do not share out their own work are tasks of it."""
    sent = [name for name, one in methods.items() if crew and not getattr(one, "shares_work", False)]
    found: dict[str, dict[str, Estimate]] = {}
    if crew is not None and sent:
        pace = Pace(Run(show=show), "methods", len(sent))
        items = [(methods[name], runs[name].sent()) for name in sent]
        made = crew.each(_ask_there, items, (question, digest), pace.advance)
        found = dict(zip(sent, made, strict=True))
    for name, method in methods.items():
        if name not in found:
            run = dataclasses.replace(runs[name], show=show, crew=crew)
            found[name] = _ask(method, question, run, digest)
    return {name: found[name] for name in methods}


def _ask_there(item: tuple[Estimator, Run], question: Question, digest: str) -> dict[str, Estimate]:
    """`_ask`, as a task."""
    method, run = item
    return _ask(method, question, run, digest)


def _ask(method: Estimator, question: Question, run: Run, digest: str) -> dict[str, Estimate]:
    """The method's answers, each with its time and with what it came from."""
    clock = time.perf_counter()
    answers = method.estimate(question, run)
    seconds = (time.perf_counter() - clock) / len(answers)
    origin = {"seed": question.seed, "versions": _versions(), "dataset": digest}
    return {
        name: dataclasses.replace(
            answer,
            provenance={
                **origin,
                **answer.provenance,
                "policy": _policy_digest(question.targets[name].policy),
            },
            timings={**answer.timings, "total": seconds},
        )
        for name, answer in answers.items()
    }


def _with_doubts(estimate: Estimate, policy: str, method: Estimator, findings: Iterable[Finding]) -> Estimate:
    """The estimate with what the doctor found that bears on it, before the method's own reasons."""
    told = {check.name for check in estimate.checks}
    found = doubts(
        findings,
        policy,
        log_prob=getattr(method, "reads_log_prob", False),
        discount=estimate.discount,
        horizon=estimate.horizon,
    )
    checks = [check for check in found if check.name not in told]
    return dataclasses.replace(estimate, checks=(*checks, *estimate.checks))


def _with_known(estimate: Estimate, target: Target, logged: Estimate | None) -> Estimate:
    """The estimate held against what the log knows: what can be earned, and its own policy's value.

    Args:
        estimate: of the target's value.
        target: the policy.
        logged: the log's own value, where it answers the same question.
    """
    low, high = possible_returns(target.dataset, estimate.discount, estimate.horizon)
    found = [possible(estimate, low, high)]
    if logged is not None and math.isfinite(estimate.value):
        found.append(known_value(estimate, target, logged))
    more = [check for check in found if check is not None]
    return dataclasses.replace(estimate, checks=(*more, *estimate.checks))


def _refuse_too_small(methods: Mapping[str, Estimator], dataset: Dataset) -> None:
    """Refuse data that a method says it cannot learn from, before any training."""
    for name, method in methods.items():
        least = getattr(method, "least_transitions", 1)
        if len(dataset) < least:
            called = name if name != "method" else type(method).__name__
            raise BadInput(
                f"{called} needs at least {least} transitions, and this log has {len(dataset)}. Log more; "
                "1,000 or more are usual."
            )


def _table(
    estimates: Mapping[str, Mapping[str, Estimate]], make: Callable[[Estimate], Any]
) -> dict[str, dict[str, Any]]:
    return {policy: {name: make(e) for name, e in row.items()} for policy, row in estimates.items()}


def identity(question: Question, digest: str, method: object) -> str:
    """Names a computation by what goes into it, so that a checkpoint never serves another one.

    A policy counts by its actions on the log, never by its name; a method by its fields, never by its class's
    name.

    Args:
        question: what is asked.
        digest: hash of the dataset's content.
        method: the method that is asked.
    """
    content = {
        "dataset": digest,
        "targets": [target.digest for target in question.targets.values()],
        "starts": question.starts.digest,
        "discount": float(question.discount),
        "horizon": question.horizon,
        "seed": int(question.seed),
        "method": settings_of(method),
        "versions": _versions(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _under(folder: str | Path | None, name: str) -> Path | None:
    return None if folder is None else Path(folder) / re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _policy_digest(policy: AnyPolicy) -> str:
    """The file's contents and what `load_policy` was told: with other options it is another policy."""
    digest = getattr(policy, "digest", None)
    told = getattr(policy, "loaded_with", None)
    return (str(digest) if digest else type(policy).__name__) + (f" {dict(told)}" if told else "")


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {"bcrl": __version__} | packages | {"python": platform.python_version()}


def _summary(dataset: Dataset, digest: str, findings: list[Finding]) -> dict[str, Any]:
    return {
        "name": dataset.source,
        "episodes": dataset.num_episodes,
        "transitions": len(dataset),
        "longest_episode": int(dataset.lengths.max()),
        "keys": {key: list(value.shape[1:]) for key, value in dataset.observations.items()},
        "reward_range": [float(dataset.rewards.min()), float(dataset.rewards.max())],
        "hash": digest,
        "actions": list(dataset.action_labels or ()),
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
