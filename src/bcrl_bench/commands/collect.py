"""`bcrl collect`: log episodes of one policy, or of a mixture, in a simulator."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bcrl.commands.parsing import parse
from bcrl.errors import BadInput
from bcrl.progress import ProgressLine

if TYPE_CHECKING:
    from bcrl_bench.collect import Source


@dataclass
class Collect:
    """Log episodes in DeepMind Control, straight into a dataset folder; run again to go on after an
    interruption.

    Example: bcrl collect cheetah-run --policy 025 100 --share 3 1 --out logs/
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Task, for example cheetah-run or finger-turn_hard."""
    out: Path
    """Folder of the dataset."""
    policy: tuple[str, ...]
    """Behaviours: a shipped level (025), a policy file, or random. Several make a mixture of whole episodes.
    """
    share: tuple[float, ...] = ()
    """Share of each behaviour; left out: equal."""
    noise: float = 0.2
    """Standard deviation of the Gaussian noise on the actions, clipped to the action box."""
    episodes: int = 200
    """Episodes of 500 agent steps (200 make the paper's 100,000 transitions)."""
    pixels: int | None = 84
    """Side of the frames; None logs states only."""
    stack: int = 3
    """Frames that a batch will stack."""
    rendering: Literal["fast", "faithful"] = "fast"
    """Fast leaves out shadows, reflections and multisampling."""
    seed: int = 0
    """The one seed that all randomness comes from."""
    processes: int = 2
    """Episodes run at once; changes no byte of the data."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Load policy files that can run code (.zip, .pt2)."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """No progress."""


def main(argv: Sequence[str]) -> int:
    options = parse(Collect, "collect", argv)
    from bcrl.data.storage.folder import open_folder
    from bcrl_bench.collect import Collection, collect

    shares = options.share or (1.0,) * len(options.policy)
    if len(shares) != len(options.policy):
        raise BadInput(
            f"got {len(options.policy)} policies and {len(shares)} shares; expected one share for each "
            "policy."
        )
    sources = tuple(_source(options, name, share) for name, share in zip(options.policy, shares, strict=True))
    wanted = Collection(
        options.task,
        sources,
        episodes=options.episodes,
        pixels=options.pixels,
        stack=options.stack,
        rendering=options.rendering,
        seed=options.seed,
        processes=options.processes,
    )
    with ProgressLine(options.quiet) as show:
        folder = collect(wanted, options.out, show)
    dataset = open_folder(folder)
    mean = float(dataset.rewards.sum()) / dataset.num_episodes
    print(f"{folder}: {dataset.num_episodes} episodes, {len(dataset)} transitions, mean return {mean:.1f}")
    return 0


def _source(options: Collect, name: str, share: float) -> "Source":
    from bcrl_bench.collect import Source
    from bcrl_bench.rollouts import Behaviour

    return Source(
        name, Behaviour(find_policy(options.task, name, trust=options.trust), noise=options.noise), share
    )


def find_policy(task: str, name: str, *, trust: bool = False) -> Any:  # noqa: ANN401
    """`random`, a shipped level of the task, or a policy file."""
    from bcrl.policies.load import load_policy
    from bcrl_bench.policies.shipped import shipped_policy

    if name == "random":
        return None
    return load_policy(name, trust=trust) if Path(name).suffix else shipped_policy(task, name)
