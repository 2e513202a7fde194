"""`bcrl policy plan | train | distil | evaluate`: make actors for a simulator, and measure them in it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bcrl.commands.collect import find_policy
from bcrl.commands.parsing import parse
from bcrl.commands.progress import ProgressLine
from bcrl.errors import BadInput, did_you_mean


@dataclass
class Train:
    """Train an actor; stop it at any time and run the same command again to go on.

    Example: bcrl policy train quadruped-walk --out runs/quadruped --assisted 0.8
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Task, for example cheetah-run."""
    out: Path
    """Folder for the curve, the trail of actors and the resumable state."""
    reads: Literal["state", "pixels"] = "state"
    """Soft actor-critic from the state, or DrQ-v2 from pixels."""
    preset: Literal["published", "cpu"] = "published"
    """For pixels: DrQ-v2's published settings, or small ones for two CPU cores."""
    steps: int = 400_000
    """Agent steps in all."""
    goal: float = 1e9
    """Stop once an evaluation's mean return reaches this."""
    updates_per_step: float = 0.5
    """Gradient steps for each agent step (from the state)."""
    assisted: float = 0.0
    """Share of training episodes that begin near success (quadruped, humanoid, finger; from the state)."""
    assisted_steps: int = 200
    """Length of those episodes."""
    hindsight: int = 0
    """Relabelled copies of each episode (finger-turn, from the state)."""
    shaping: float = 0.0
    """Scale of a potential for progress, added to the reward while training (finger, humanoid, quadruped; from the state)."""
    demonstrations: Path | None = None
    """Folder that `bcrl policy plan` wrote; half of every batch is drawn from it (from the state)."""
    initial: Path | None = None
    """Begin with this actor (from the state); its critics learn 4,000 updates before it changes."""
    random_steps: int = 5_000
    """Uniformly random agent steps at the beginning (from the state)."""
    batch: int = 256
    """Transitions in a gradient step (from the state)."""
    evaluate_every: int = 10_000
    """Agent steps between evaluations."""
    episodes: int = 5
    """Episodes in an evaluation."""
    seed: int = 0
    """The one seed that all randomness comes from."""


@dataclass
class Plan:
    """Find by search in the simulator how to get up, for `policy train --demonstrations`; run it again to go on after a stop.

    Example: bcrl policy plan quadruped-walk --out runs/plans
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """A quadruped or humanoid task, for example quadruped-walk."""
    out: Path
    """Folder for the demonstrations, one file each."""
    count: int = 60
    """Demonstrations, one for each seed from --first-seed on."""
    first_seed: int = 0
    """First seed of the start states."""
    steps: int = 100
    """Agent steps of each."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """No progress."""


@dataclass
class Distil:
    """Teach a pixel actor to do what a state actor does (DAgger); run it again to go on after a stop.

    Example: bcrl policy distil cheetah-run 100 --out pixels.safetensors
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Task, for example cheetah-run."""
    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """The teacher: a shipped level (100) or a policy file that reads the state."""
    out: Path
    """The pixel actor's file."""
    pixels: int = 64
    """Side of the frames."""
    rounds: int = 6
    """Rounds of collecting with the student and learning from the teacher."""
    episodes: int = 50
    """Episodes on which the finished actor is measured, one for each seed from 0 on."""
    seed: int = 0
    """The one seed that all randomness comes from."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """No progress."""


@dataclass
class Evaluate:
    """Roll a policy out and print its undiscounted return.

    Example: bcrl policy evaluate cheetah-run 100
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Task, for example cheetah-run."""
    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """A shipped level (100, pixels64/100), a policy file, or random."""
    episodes: int = 50
    """Episodes, one for each seed from --first-seed on."""
    first_seed: int = 0
    """First seed; shipped actors were measured on 0 to 49."""
    noise: float = 0.0
    """Standard deviation of the Gaussian noise on the actions."""
    pixels: int | None = None
    """Side of the frames, for a policy that reads pixels (64 for pixels64/100)."""
    action_repeat: int = 2
    """Control steps an action is held for, of 1,000 in all (4 for actors of DrQ-v2's CPU preset)."""
    discount: float | None = None
    """Also the discounted return with its standard error, simulated past the time limit."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Load policy files that can run code (.zip, .pt2)."""


def train(argv: Sequence[str]) -> int:
    options = parse(Train, "policy train", argv)

    def show(line: dict[str, object]) -> None:
        print(json.dumps(line), flush=True)

    if options.reads == "pixels":
        from bcrl.benchmark.policies.drqv2 import DrQv2, train_from_pixels

        learner = DrQv2.cpu(options.seed) if options.preset == "cpu" else DrQv2(seed=options.seed)
        best = train_from_pixels(
            learner, options.task, options.out, steps=options.steps, goal=options.goal, show=show
        )
    else:
        from bcrl.benchmark.policies.sac import SAC
        from bcrl.benchmark.policies.train import Training
        from bcrl.benchmark.policies.train import train as train_from_state

        best = train_from_state(
            Training(
                options.task,
                options.out,
                steps=options.steps,
                goal=options.goal,
                sac=SAC(
                    updates_per_step=options.updates_per_step,
                    batch=options.batch,
                    random_steps=options.random_steps,
                    critic_first=0 if options.initial is None else 4_000,
                    seed=options.seed,
                ),
                initial=options.initial,
                assisted=options.assisted,
                assisted_steps=options.assisted_steps,
                hindsight=options.hindsight,
                shaping=options.shaping,
                demonstrations=options.demonstrations,
                evaluate_every=options.evaluate_every,
                episodes=options.episodes,
            ),
            show,
        )
    print(f"{options.task}: best mean return {best:.1f}; actors in {options.out / 'trail'}")
    return 0


def plan(argv: Sequence[str]) -> int:
    options = parse(Plan, "policy plan", argv)
    from bcrl.benchmark.policies.planning import Planner, save_demonstrations

    seeds = range(options.first_seed, options.first_seed + options.count)
    with ProgressLine(options.quiet) as show:
        ends = save_demonstrations(options.task, options.out, seeds, Planner(steps=options.steps), show)
    good = sum(end > 0.9 for end in ends)
    print(f"{options.out}: {len(ends)} demonstrations, {good} of them end at 0.9 of full progress or more")
    return 0


def distil(argv: Sequence[str]) -> int:
    options = parse(Distil, "policy distil", argv)
    from bcrl.benchmark.policies.distil import Distillation, distil_actor

    teacher = find_policy(options.task, options.policy)
    if teacher is None or teacher.reads != "state":
        raise BadInput(f"{options.policy} does not read the state; the teacher must.")
    recipe = Distillation(pixels=options.pixels, rounds=options.rounds, seed=options.seed)
    with ProgressLine(options.quiet) as show:
        mean = distil_actor(recipe, options.task, teacher, options.out, show, options.episodes)
    print(f"{options.out}: mean return {mean:.1f} from {options.pixels} x {options.pixels} pixels")
    return 0


def evaluate(argv: Sequence[str]) -> int:
    options = parse(Evaluate, "policy evaluate", argv)
    from bcrl.benchmark.rollouts import Behaviour, undiscounted_returns
    from bcrl.benchmark.tasks import ControlTask
    from bcrl.benchmark.truth import Question, simulate

    policy = find_policy(options.task, options.policy, trust=options.trust)
    if getattr(policy, "reads", "state") == "pixels":
        import torch

        torch.set_num_threads(1)  # one image is no sooner read by two, and the last bits depend on it
    behaviour = Behaviour(policy, noise=options.noise)
    seeds = list(range(options.first_seed, options.first_seed + options.episodes))
    repeat = options.action_repeat
    task = ControlTask(
        options.task, pixels=options.pixels, action_repeat=repeat, limit=1_000 // max(1, repeat)
    )
    returns = undiscounted_returns(task, behaviour, seeds)
    sd = float(returns.std(ddof=1)) if len(returns) > 1 else 0.0
    answer = {
        "task": options.task,
        "policy": options.policy,
        "mean": float(returns.mean()),
        "sd": sd,
        "seeds": seeds,
    }
    if options.discount is not None:
        question = Question(
            options.task, behaviour, options.discount, pixels=options.pixels, maximum=max(2, options.episodes)
        )
        truth = simulate(question, processes=1)
        answer |= {"value": truth.value, "standard_error": truth.standard_error, "discount": options.discount}
    if options.json:
        print(json.dumps(answer | {"returns": returns.tolist()}))
        return 0
    print(
        f"{options.task} {options.policy}: return {returns.mean():.1f} (sd {sd:.1f}, {len(seeds)} episodes)"
    )
    if options.discount is not None:
        print(
            f"discounted at {options.discount}: {answer['value']:.2f} (standard error {answer['standard_error']:.2f})"
        )
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "plan": plan,
    "train": train,
    "distil": distil,
    "evaluate": evaluate,
}
HELP = """usage: bcrl policy COMMAND TASK ...          (bcrl policy COMMAND --help for its options)

  plan       demonstrations of getting up       bcrl policy plan quadruped-walk --out runs/plans
  train      train an actor in a simulator      bcrl policy train cheetah-run --out runs/cheetah
  distil     teach a pixel actor                bcrl policy distil cheetah-run 100 --out pixels.safetensors
  evaluate   roll a policy out                  bcrl policy evaluate cheetah-run 100

Example: bcrl policy evaluate cheetah-run 100 --episodes 10 --discount 0.99"""


def main(argv: Sequence[str]) -> int:
    if not argv:
        raise BadInput(f"Missing: one of {', '.join(COMMANDS)}. Run bcrl policy --help for examples.")
    if argv[0] in ("-h", "--help"):
        print(HELP)
        raise SystemExit(0)  # as the parser of every other command does
    if argv[0] not in COMMANDS:
        raise BadInput(f"No command policy {argv[0]}. {did_you_mean(argv[0], COMMANDS)}")
    return COMMANDS[argv[0]](argv[1:])
