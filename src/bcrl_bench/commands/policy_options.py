"""What `bcrl policy plan | train | distil | evaluate` can be told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


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
    """Share of training episodes that begin near success (quadruped, humanoid, finger), or on the way of a
    demonstration where there are any (from the state).
    """
    assisted_steps: int = 200
    """Length of those episodes."""
    hindsight: int = 0
    """Relabelled copies of each episode (finger-turn, from the state)."""
    shaping: float = 0.0
    """Scale of a potential for progress, added to the reward while training (finger, humanoid, quadruped;
    from the state).
    """
    demonstrations: Path | None = None
    """Folder that `bcrl policy plan` wrote; half of every batch is drawn from it (from the state)."""
    harness: float = 0.0
    """First level of an outer force that holds the humanoid up and gives way as it learns to stand, e.g. 1
    (from the state); all training episodes then have --assisted-steps steps.
    """
    mirror: tyro.conf.FlagCreatePairsOff[bool] = False
    """Learn from every step and from its mirror image (humanoid, from the state)."""
    buffer: int = 500_000
    """Transitions kept to learn from; with a harness, old ones tell of one that held more (from the state).
    """
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
    """Find by search in the simulator how to get up, for `policy train --demonstrations`; run it again to go
    on after a stop.

    Example: bcrl policy plan quadruped-walk --out runs/plans
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """A quadruped or humanoid task, for example quadruped-walk."""
    out: Path
    """Folder for the demonstrations, one file each."""
    count: int = 60
    """Demonstrations, one for each seed from --first-seed on."""
    first_seed: int = 10_000
    """First seed of the start states; actors are measured on 0 to 49, and while training on 1,000 and a few
    more.
    """
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
    """Control steps an action is held for, of 1,000 in all (8 for actors of DrQ-v2's CPU preset)."""
    discount: float | None = None
    """Also the discounted return with its standard error, simulated past the time limit."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Load policy files that can run code (.zip, .pt2)."""
