"""A family: one kind of world, how it is logged and what is asked about it. One file of families/ each."""

import hashlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from bcrl.errors import BadInput, did_you_mean
from bcrl_bench.proving.world import World

FOLDER = Path(__file__).parent / "families"
REGIMES = ("noisy", "good", "replay", "mixture", "nearly_random")


@dataclass(frozen=True)
class Family:
    """What makes the cases of a family; `FAMILY` in its file.

    Attributes:
        name: as the file's.
        make: a world from its seed; a fixed simulator ignores it.
        length: steps after which a record is cut.
        noise: of the logging policies: standard deviation of Gaussian noise on every continuous action, or
            the share of uniformly random discrete actions.
        discounts, horizons: what is asked about; None is the whole future, which discount 1 does not have.
        episodes: sizes of logs; cut so that no log has more than 20,000 rows.
        cases: how many; four to a log.
        rollouts: of the truth, at first; doubled until the standard error is under 1 % of the scale.
        longest: steps of a rollout of the truth, where no exact value is known.
        worlds: how many different ones (seeds 0 to worlds - 1); 1 for a fixed simulator.
        loud: noise of the nearly random logging policy, around "poor"; None: three times `noise`, or 0.9.
        regimes: ways in which it is logged.
        batch: most episodes to run at once.
        unknowable: no method can know the answer from the log, so it is shown apart.
        files: other files beside this package's family.py (shared simulators, weights) that it is made of.
    """

    name: str
    make: Callable[[int], World]
    length: int
    noise: float
    discounts: tuple[float, ...]
    horizons: tuple[int | None, ...] = (None,)
    episodes: tuple[int, ...] = (30, 60, 120, 250, 500)
    cases: int = 40
    rollouts: int = 2_000
    longest: int = 1_000
    worlds: int = 5
    loud: float | None = None
    regimes: tuple[str, ...] = REGIMES
    batch: int = 2_000
    unknowable: bool = False
    files: tuple[str, ...] = ()


def family_names() -> list[str]:
    """All families: the files of the folder."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def load_family(name: str) -> Family:
    """The family of a file."""
    if name not in family_names():
        raise BadInput(f"No family {name!r} in the proving ground. {did_you_mean(name, family_names())}")
    family = import_module(f"bcrl_bench.proving.families.{name}").FAMILY
    if not isinstance(family, Family) or family.name != name:
        raise BadInput(f"families/{name}.py holds no FAMILY of the name {name!r}; got {family!r}.")
    return family


@cache
def family_hash(name: str) -> str:
    """Of the text of a family's file, and of the files that it says it is made of; the older key of a text
    that was rewritten without a change of what it computes (kept_keys.toml)."""
    content = hashlib.sha256((FOLDER / f"{name}.py").read_bytes())
    for other in load_family(name).files:
        content.update((FOLDER / other).read_bytes())
    text = content.hexdigest()[:16]
    return str(kept_keys().get(text, text))


@cache
def kept_keys() -> dict[str, str]:
    """Keys that truths and records already carry, by the hash of a text that computes the same."""
    return tomllib.loads(Path(__file__).with_name("kept_keys.toml").read_text())
