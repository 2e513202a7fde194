"""`bcrl demo`: the whole story on cheetah-run. Two logs, one policy nobody has run, three methods, and the
truth beside them.

The first log mixes a weak policy with the new one, so that it shows what the new policy does: the answer
should be right and trusted. The second is the weak policy alone: nobody ever saw what the new policy would
do, and the verdict must say so; below it stands what can be said and done: bounds, a guarded policy with its
verdict and what it truly earns, the trial that would settle it. With --pixels the new policy and the methods
see 64x64 frames and nothing else.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from bcrl.commands.parsing import parse
from bcrl.errors import BadInput
from bcrl.progress import ProgressLine
from bcrl_bench.processes import in_processes

Show = Callable[[Mapping[str, Any]], None]


@dataclass
class Demo:
    """Evaluate cheetah-run's best actor offline, from a log that covers it and from one that does not.

    Example: bcrl demo --out demo-output
    """

    out: Path = Path("demo-output")
    """Folder for logs, results and reports; what is there is not made again."""
    pixels: tyro.conf.FlagCreatePairsOff[bool] = False
    """From 64x64 images instead of joint angles and speeds (under 20 minutes)."""
    episodes: int | None = None
    """Episodes per log; left out: 80, or 40 from images."""
    methods: tuple[str, ...] = ()
    """Methods to show; left out: bcrl, fqe, random."""
    seed: int = 0
    """The one seed that all randomness comes from."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """No progress."""


TASK, DISCOUNT = "cheetah-run", 0.99
# FQE's own budget would take most of the demo's time; what it has by then is shown, and said to be
# unfinished.
METHODS = {"bcrl": "bcrl", "fqe": "FQE(steps=4000)", "random": "random"}
# From pixels every step encodes hundreds of images: three quarters of BCRL's own steps; of FQE's few, small,
# half as wide.
PIXEL_METHODS = {
    "bcrl": "LSPE(BellmanComplete(steps=150))",
    "fqe": "FQE(steps=300, batch_size=128, pixels=Pixels(channels=16))",
    "random": "LSPE(RandomFeatures(dim=256))",
}
EPISODES, PIXEL_EPISODES = 80, 40
ROLLOUTS, PIXEL_ROLLOUTS = 100, 40  # 25,000 frames a core-minute; their standard error is shown
LOGS = {
    "mixture": ("25 % policy and the new policy, half each", ("025", "100")),
    "weak policy only": ("25 % policy alone", ("025",)),
}


def main(argv: Sequence[str]) -> int:
    """Truth first, then both logs side by side, then what came of them."""
    options = parse(Demo, "demo", argv)
    os.environ.setdefault("MUJOCO_GL", "egl")
    from bcrl.commands.showing import print_comparison
    from bcrl.comparison import Comparison
    from bcrl.methods import parse_method
    from bcrl_bench.rollouts import Behaviour
    from bcrl_bench.truth import TruthQuestion, true_value

    # Read before anything is simulated: a misspelt name should not cost minutes.
    texts = {name: name for name in options.methods} or (PIXEL_METHODS if options.pixels else METHODS)
    for text in texts.values():
        parse_method(text)
    if options.episodes is not None and options.episodes < 1:
        raise BadInput(f"--episodes is {options.episodes}; expected 1 or more.")
    size = 64 if options.pixels else None
    target, rollouts = Behaviour(_actors(size)["100"], noise=0.0), PIXEL_ROLLOUTS if size else ROLLOUTS
    question = TruthQuestion(TASK, target, DISCOUNT, pixels=size, visited=1, minimum=rollouts)
    with ProgressLine(options.quiet) as show:
        found = true_value(question, cache=options.out / "truth", show=show)
        truth = {"value": found.value, "standard_error": found.standard_error}
        command = shlex.join(["bcrl", "demo", *argv])
        in_processes(answer, [(name, options, texts, truth, command) for name in LOGS], show)
    for name, (story, _) in LOGS.items():
        folder = _folder(options, name)
        print(f"\nLog: {name} ({story})")
        print_comparison(Comparison.load(folder / "results.json"))
        print(f"report: {folder / 'report.html'}")
    return 0


def answer(
    name: str, options: Demo, texts: Mapping[str, str], truth: Mapping[str, float], command: str, show: Show
) -> None:
    """Collect one log, ask every method about the new policy, and write results and page."""
    from bcrl.data.sources import load_dataset
    from bcrl.evaluation import compare
    from bcrl.methods import parse_method
    from bcrl.report import write_report
    from bcrl_bench.collect import Collection, Source, collect
    from bcrl_bench.rollouts import Behaviour

    size, folder = 64 if options.pixels else None, _folder(options, name)
    actors = _actors(size)
    sources = tuple(Source(level, Behaviour(actors[level])) for level in LOGS[name][1])
    episodes = PIXEL_EPISODES if size else EPISODES
    episodes = episodes if options.episodes is None else options.episodes
    collection = Collection(TASK, sources, episodes=episodes, pixels=size, seed=options.seed, processes=1)

    def tell(news: Mapping[str, Any]) -> None:
        show({**news, "stage": f"{name}: {news.get('stage', 'working')}"})

    log = load_dataset(collect(collection, folder / "log", tell))
    comparison = compare(
        log,
        {"new policy": actors["100"]},
        discount=DISCOUNT,
        methods={method: parse_method(text) for method, text in texts.items()},
        seed=options.seed,
        folder=folder / "checkpoints",
        show=tell,
        truth={"new policy": dict(truth)},
        command=command,
    )
    doubted = comparison.next_steps.get("new policy", ())
    if doubted and not options.pixels:  # distances between pictures say little, so nothing can be guarded
        from bcrl_bench.guarding import guarded_steps

        more = guarded_steps(log, actors["100"], TASK, DISCOUNT, folder / "guarded.html", options.seed)
        steps = (*more, *(step for step in doubted if step.name == "trial"))
        comparison = replace(comparison, next_steps={"new policy": steps})
    comparison.save(folder / "results.json")
    write_report(comparison, folder / "report.html")


def _actors(size: int | None) -> dict[str, Any]:
    """The weak policy only acts, so it may see the state; the new one must be asked what it would do, from
    frames alone.
    """
    from bcrl_bench.policies.shipped import shipped_policy

    new = shipped_policy(TASK, f"pixels{size}/100" if size else "100")
    return {"100": new, "025": shipped_policy(TASK, "025")}


def _folder(options: Demo, name: str) -> Path:
    return options.out / f"{name.replace(' ', '-')}{'-pixels' if options.pixels else ''}"
