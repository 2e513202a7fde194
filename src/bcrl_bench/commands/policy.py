"""`bcrl policy plan | train | distil | evaluate`: make actors for a simulator, and measure them in it."""

import json
from collections.abc import Sequence

from bcrl.commands.parsing import parse
from bcrl.errors import BadInput
from bcrl.progress import ProgressLine
from bcrl_bench.commands.collect import find_policy
from bcrl_bench.commands.policy_options import Distil, Evaluate, Plan, Train
from bcrl_bench.commands.subcommands import Command, run_subcommand

GOOD = 0.9


def train(argv: Sequence[str]) -> int:
    options = parse(Train, "policy train", argv)

    def show(line: dict[str, object]) -> None:
        print(json.dumps(line), flush=True)

    if options.reads == "pixels":
        from bcrl_bench.policies.drqv2 import DrQv2, train_from_pixels

        learner = DrQv2.cpu(options.seed) if options.preset == "cpu" else DrQv2(seed=options.seed)
        best = train_from_pixels(
            learner, options.task, options.out, steps=options.steps, goal=options.goal, show=show
        )
    else:
        from bcrl_bench.policies.sac import SAC
        from bcrl_bench.policies.train import Training
        from bcrl_bench.policies.train import train as train_from_state

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
                    buffer=options.buffer,
                    critic_first=0 if options.initial is None else 4_000,
                    seed=options.seed,
                ),
                initial=options.initial,
                assisted=options.assisted,
                assisted_steps=options.assisted_steps,
                hindsight=options.hindsight,
                shaping=options.shaping,
                demonstrations=options.demonstrations,
                harness=options.harness,
                mirror=options.mirror,
                evaluate_every=options.evaluate_every,
                episodes=options.episodes,
            ),
            show,
        )
    print(f"{options.task}: best mean return {best:.1f}; actors in {options.out / 'trail'}")
    return 0


def plan(argv: Sequence[str]) -> int:
    options = parse(Plan, "policy plan", argv)
    if options.count < 1 or options.first_seed < 0:
        raise BadInput(
            f"got --count {options.count} --first-seed {options.first_seed}; expected 1 and 0 or more."
        )
    from bcrl_bench.policies.demonstrations import save_demonstrations
    from bcrl_bench.policies.planning import Planner, domain_of
    from bcrl_bench.tasks import ControlTask

    planner, seeds = (
        Planner(steps=options.steps),
        range(options.first_seed, options.first_seed + options.count),
    )
    world, ends = ControlTask(options.task, pixels=None), list[float]()
    domain_of(options.task)
    with ProgressLine(options.quiet) as show:
        for one in save_demonstrations(world, options.out, seeds, planner.demonstrate):
            ends.append(one.progress)
            show({"stage": "planning", "step": len(ends), "steps": len(seeds), "progress": one.progress})
    good = sum(end >= GOOD for end in ends)
    print(f"{options.out}: {len(ends)} demonstrations, {good} of them end at {GOOD} of full progress or more")
    return 0


def distil(argv: Sequence[str]) -> int:
    options = parse(Distil, "policy distil", argv)
    from bcrl_bench.policies.distil import Distillation, distil_actor

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
    from bcrl_bench.rollouts import Behaviour, undiscounted_returns
    from bcrl_bench.tasks import ControlTask
    from bcrl_bench.truth import TruthQuestion, simulate

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
        question = TruthQuestion(
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
            f"discounted at {options.discount}: {answer['value']:.2f} (standard error "
            f"{answer['standard_error']:.2f})"
        )
    return 0


COMMANDS: dict[str, Command] = {
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
    return run_subcommand("policy", COMMANDS, HELP, argv)
