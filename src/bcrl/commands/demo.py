"""`bcrl demo`: the whole story on cheetah-run. Two logs, one policy nobody has run, three methods, and the truth beside them.

The first log mixes a weak policy with the new one, so that it shows what the new policy does: the answer should be right
and trusted. The second is the weak policy alone: nobody ever saw what the new policy would do, and the verdict must say so.
With --pixels the new policy and the methods see 64x64 frames and nothing else.
"""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from bcrl.commands.parsing import parse
from bcrl.commands.progress import ProgressLine


@dataclass
class Demo:
    """Evaluate cheetah-run's best actor offline, from a log that covers it and from one that does not.

    Example: bcrl demo --out demo-output
    """

    out: Path = Path("demo-output")
    """Folder for logs, results and reports; what is there is not made again."""
    pixels: tyro.conf.FlagCreatePairsOff[bool] = False
    """From 64x64 images instead of joint angles and speeds (under 20 minutes)."""
    episodes: int = 40
    """Episodes per log."""
    methods: tuple[str, ...] = ()
    """Methods to show; left out: bcrl, fqe, random."""
    seed: int = 0
    """The one seed that all randomness comes from."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """No progress."""


TASK, DISCOUNT = "cheetah-run", 0.99
# FQE's own budget would take most of the demo's time; what it has by then is shown, and said to be unfinished.
METHODS = {"bcrl": "bcrl", "fqe": "FQE(steps=2000)", "random": "random"}
# From pixels every step encodes hundreds of images: fewer steps, smaller batches and half the channels fit two cores.
PIXEL_METHODS = {
    "bcrl": "LSPE(BellmanComplete(steps=150, batch_size=512, channels=16))",
    "fqe": "FQE(steps=400, batch_size=128, channels=16)",
    "random": "random",
}
PIXEL_ROLLOUTS = 60  # 25,000 frames a core-minute; their standard error is shown
LOGS = {
    "mixture": ("25 % policy and the new policy, half each", ("025", "100")),
    "weak policy only": ("25 % policy alone", ("025",)),
}


def main(argv: Sequence[str]) -> int:
    options = parse(Demo, "demo", argv)
    os.environ.setdefault("MUJOCO_GL", "egl")
    from bcrl.benchmark.collect import Collection, Source, collect
    from bcrl.benchmark.policies.shipped import shipped_policy
    from bcrl.benchmark.rollouts import Behaviour
    from bcrl.benchmark.truth import Question, true_value
    from bcrl.commands.showing import print_comparison
    from bcrl.data.sources import load_dataset
    from bcrl.evaluation import compare
    from bcrl.methods import parse_method
    from bcrl.report import write_report

    # Read before anything is simulated: a misspelt name should not cost minutes.
    texts = {name: name for name in options.methods} or (PIXEL_METHODS if options.pixels else METHODS)
    methods = {name: parse_method(text) for name, text in texts.items()}
    size = 64 if options.pixels else None
    # The weak policy only acts, so it may see the state; the new one must be asked what it would do, from frames alone.
    actors = {
        "100": shipped_policy(TASK, "pixels64/100" if size else "100"),
        "025": shipped_policy(TASK, "025"),
    }
    policy = actors["100"]
    question = Question(TASK, Behaviour(policy, noise=0.0), DISCOUNT, pixels=size)
    if size:
        question = replace(question, visited=1, minimum=PIXEL_ROLLOUTS)
    with ProgressLine(options.quiet) as show:
        truth = true_value(question, cache=options.out / "truth", show=show)
        pages = []
        for name, (story, levels) in LOGS.items():
            sources = tuple(Source(level, Behaviour(actors[level])) for level in levels)
            folder = options.out / f"{name.replace(' ', '-')}{'-pixels' if options.pixels else ''}"
            collection = Collection(TASK, sources, episodes=options.episodes, pixels=size, seed=options.seed)
            dataset = load_dataset(collect(collection, folder / "log", show))
            comparison = compare(
                dataset,
                {"new policy": policy},
                discount=DISCOUNT,
                methods=methods,
                seed=options.seed,
                folder=folder / "checkpoints",
                show=show,
                truth={"new policy": {"value": truth.value, "standard_error": truth.standard_error}},
                command=shlex.join(["bcrl", "demo", *argv]),
            )
            comparison.save(folder / "results.json")
            pages.append((name, story, comparison, write_report(comparison, folder / "report.html")))
    for name, story, comparison, page in pages:
        print(f"\nLog: {name} ({story})")
        print_comparison(comparison)
        print(f"report: {page}")
    return 0
