"""A profile: which experiments to run, in which order, with which settings. One TOML file each, in profiles/.

An experiment is task x dataset x policy x method x seed. Seeds vary training only: there is one dataset for
each task and behaviour, and one truth for each task and policy.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bcrl.errors import BadInput, did_you_mean

PROFILES = Path(__file__).parents[1] / "profiles"


@dataclass(frozen=True, order=True)
class Experiment:
    """One cell of the grid."""

    task: str
    dataset: str
    policy: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """What the command line and the file call it: `cheetah-run/025/100/fqe-0`."""
        return f"{self.task}/{self.dataset}/{self.policy}/{self.method}-{self.seed}"


@dataclass(frozen=True)
class Part:
    """Some cells that belong together: all combinations of these."""

    name: str
    datasets: tuple[str, ...]
    policies: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int

    @property
    def only_small(self) -> bool:
        """Whether the full form does without it, because other parts hold its cells."""
        return self.name.startswith("small ")


@dataclass(frozen=True)
class Profile:
    """What is run.

    Attributes:
        name: of the profile, and of its folder of results.
        tasks: by dm_control name.
        discount: of all values.
        episodes: of each behaviour.
        datasets: actors whose episodes make each dataset, one actor after the other.
        methods: text of each method, or `constant mean`.
        parts: in the order in which they are run.
        pixels: side of the frames; None has states only.
        noise: standard deviation of the behaviours' action noise.
        visited: target rollouts at which values beyond the start states are compared.
        actors: for a task, shipped actors that stand in for a level, e.g. {"100": "pixels64/100"}.
        dry: methods take two updates only.
        updates: methods take so many updates only; the results say that they test no claim.
        words: what the command line calls it, with its variant.
    """

    name: str
    about: str
    tasks: tuple[str, ...]
    discount: float
    episodes: int
    datasets: Mapping[str, tuple[str, ...]]
    methods: Mapping[str, str]
    parts: tuple[Part, ...]
    pixels: int | None = None
    noise: float = 0.2
    visited: int = 20
    actors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dry: bool = False
    updates: int | None = None
    words: str = ""

    def actor(self, task: str, level: str) -> str:
        """Name of the shipped actor of a level."""
        return self.actors.get(task, {}).get(level, level)

    def experiments(self, seeds: int | None = None) -> list[Experiment]:
        """All cells in the order in which they are run; the seeds of a part come last, so early results span
        it.
        """
        found = [
            Experiment(task, dataset, policy, method, seed)
            for part in self.parts
            for seed in range(part.seeds if seeds is None else min(seeds, part.seeds))
            for task in self.tasks
            for dataset in part.datasets
            for policy in part.policies
            for method in part.methods
        ]
        return list(dict.fromkeys(found))

    def settings(self, experiment: Experiment) -> dict[str, Any]:
        """What a cell's number depends on, as far as the profile says it."""
        return {
            "discount": self.discount,
            "episodes": self.episodes,
            "actors": [self.actor(experiment.task, level) for level in self.datasets[experiment.dataset]],
            "policy": self.actor(experiment.task, experiment.policy),
            "noise": self.noise,
            "pixels": self.pixels,
            "method": self.methods[experiment.method],
            "dry": self.dry,
            **({} if self.updates is None else {"updates": self.updates}),
        }


def profile_names() -> list[str]:
    """The profiles that come with the package."""
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def load_profile(name: str, *, quick: bool = False, dry: bool = False, small: bool = False) -> Profile:
    """A profile by name or file; `quick`, `dry` and `small` are variants with results of their own."""
    path = Path(name) if name.endswith(".toml") else PROFILES / f"{name}.toml"
    if not path.is_file():
        raise BadInput(f"No profile {name!r}. {did_you_mean(name, profile_names())}")
    text = tomllib.loads(path.read_text(encoding="utf-8"))
    variants = {key: text.pop(key, {}) for key in ("quick", "dry", "small")}
    profile = replace(_read(path.stem, text), words=name)
    for chosen, key in ((quick, "quick"), (dry, "dry"), (small, "small")):
        if chosen and key == "small" and not variants[key]:
            raise BadInput(f"The profile {name!r} has no small form; leave --small out.")
        if chosen:
            return _varied(profile, key, dict(variants[key]))
    return replace(profile, parts=tuple(part for part in profile.parts if not part.only_small))


def _read(name: str, text: Mapping[str, Any]) -> Profile:
    fields = dict(text)
    parts = tuple(
        Part(
            part["name"],
            tuple(part["datasets"]),
            tuple(part["policies"]),
            tuple(part["methods"]),
            part["seeds"],
        )
        for part in fields.pop("parts")
    )
    datasets = {key: tuple(levels) for key, levels in fields.pop("datasets").items()}
    profile = Profile(name=name, tasks=tuple(fields.pop("tasks")), datasets=datasets, parts=parts, **fields)
    for part in parts:
        known(part.methods, profile.methods, "method")
        known(part.datasets, profile.datasets, "dataset")
    return profile


def _varied(profile: Profile, key: str, changes: dict[str, Any]) -> Profile:
    methods = {**profile.methods, **changes.pop("methods", {})}
    keep = changes.pop("parts", [part.name for part in profile.parts if not part.only_small])
    seeds = changes.pop("seeds", None)
    parts = tuple(
        part if seeds is None else replace(part, seeds=min(seeds, part.seeds))
        for part in profile.parts
        if part.name in keep
    )
    return replace(
        profile,
        name=f"{profile.name}-{key}",
        words=f"{profile.words} --{key}",
        methods=methods,
        parts=parts,
        dry=key == "dry",
        **changes,
    )


def narrowed(profile: Profile, *, tasks: Sequence[str], methods: Sequence[str]) -> Profile:
    """The same profile with some of its tasks and methods only; any dm_control task may be asked for."""
    known(methods, profile.methods, "method")
    chosen = [m for part in profile.parts for m in part.methods if not methods or m in methods]
    parts = tuple(
        replace(part, methods=tuple(m for m in part.methods if m in chosen)) for part in profile.parts
    )
    return replace(profile, tasks=tuple(tasks) or profile.tasks, parts=parts)


def known(names: Iterable[str], among: Iterable[str], what: str) -> None:
    """Refuse a name that is not among these."""
    there = list(among)
    for name in names:
        if name not in there:
            raise BadInput(f"No {what} {name!r} in the profile. {did_you_mean(name, there)}")
