"""`bcrl compare`: several policies by several methods, beside the logging policy."""

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bcrl.commands.parsing import parse
from bcrl.commands.reading import Ends, Missing, read, reader_options
from bcrl.errors import BadInput, printable
from bcrl.progress import ProgressLine
from bcrl.writing import writable_file

if TYPE_CHECKING:
    from bcrl.comparison import Comparison


@dataclass(kw_only=True)
class QuestionOptions:
    """What `evaluate` and `compare` both ask."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Dataset: .npz, .hdf5, .csv, .parquet, a folder, or minari:ID."""
    discount: float
    """Discount of the value, in [0, 1); it is part of the question and has no default."""
    horizon: int | None = None
    """Value of this many steps; the whole future if left out."""
    level: float = 0.95
    """Confidence level of the intervals, between 0 and 1."""
    seed: int = 0
    """The seed of all randomness."""
    stack: int | None = None
    """Frames stacked for pixel observations; if left out, what the data says."""
    columns: str | None = None
    """For tables: action=dose,reward=outcome, or JSON, or a JSON file, such as
    {"observation": ["x", "v"], "action": "a", "reward": "r", "episode": "id"}."""
    ends: Ends | None = None
    """What the last row of an episode is if the data marks no end: the world's end (terminated), the
    record's (truncated), or a row to leave out (drop)."""
    cohort: str | None = None
    """For tables: column of groups (a ward, an age group) to look at one by one, as guardrails."""
    missing: Missing | None = None
    """For tables: observations that are not there are refused, carried forward in the episode, or take the
    column's mean."""
    next: tyro.conf.FlagCreatePairsOff[bool] = False
    """Where a policy is not trusted, value a guarded policy too (bcrl guard has more of it)."""
    trained_on_log: tyro.conf.FlagCreatePairsOff[bool] = False
    """The policies were made from this log, which flatters them: their values are never trusted."""
    title: str | None = None
    """Title of the page; the data's name if left out."""
    fail_on: Literal["caution", "distrust"] | None = None
    """Exit with code 3 if the verdict on any policy is this or worse (for CI)."""
    out: Path | None = None
    """Folder for results.json, report.html and checkpoints; the same command continues a killed run."""
    save_every: float = 30.0
    """Seconds between two checkpoints of a training (in --out)."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the results as JSON instead of a table."""
    device: str = "auto"
    """What networks are trained on, e.g. cpu or cuda; auto takes a GPU if there is one."""
    tensorboard: Path | None = None
    """Folder for TensorBoard event files of every training."""
    representation: Path | None = None
    """Folder of saved features (bcrl.save_representation) to evaluate on, in place of a method."""
    ray: str | None = None
    """Address of a Ray cluster that shares the work; auto finds the one of this machine."""
    workers_per_training: int = 1
    """Workers of the cluster that share one training of a representation."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """No progress."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Load policy files that can run code (SB3 zips, torch.export)."""
    stochastic: tyro.conf.FlagCreatePairsOff[bool] = False
    """Evaluate the random policy that a file describes, not its most likely action."""
    stats: Path | None = None
    """VecNormalize statistics of an SB3 policy."""
    reads: str | None = None
    """Observation key that the policies read."""
    output: Literal["actions", "probabilities", "logits", "q_values"] | None = None
    """What the policy files give: actions, or scores of discrete actions (skl2onnx: probabilities)."""
    output_name: str | None = None
    """Output of an exported graph that holds it, if there are several (skl2onnx: probabilities)."""
    policy_seconds: float = 300.0
    """Time for one call of a policy, about some thousand observations; a longer one is an error."""


@dataclass(kw_only=True)
class Compare(QuestionOptions):
    """What would these policies earn, and which one is best?

    Example: bcrl compare logs/ new.onnx old.onnx --discount 0.99 --method bcrl fqe --out results/
    """

    policies: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME=]FILE ...")]
    """Policy files: .onnx, .safetensors, or with --trust an SB3 .zip or a torch.export .pt2."""
    method: tuple[str, ...] = ()
    """Methods, bcrl if left out: bcrl, fqe, random (random features), anchored, curl, spr, is, dr, dice,
    model, or a call such as 'LSPE(BellmanComplete(dim=64))'; NAME=METHOD gives it a name."""


_LONGEST_NAME = 60


def main(argv: Sequence[str]) -> int:
    return run(parse(Compare, "compare", argv), "compare", argv)


def run(options: Compare, command: str, argv: Sequence[str], *, rollouts: str | None = None) -> int:
    """Compare, write, print; `rollouts`: episodes of the one policy."""
    from bcrl.commands.showing import print_comparison
    from bcrl.evaluation import compare
    from bcrl.policies import load_policy
    from bcrl.question import check_numbers
    from bcrl.report import write_report

    # What was typed is checked before anything is read: data may take minutes to load.
    check_numbers(options.discount, options.horizon, options.level, options.seed)
    methods = name_methods(options.method)
    files = name_policies(options.policies)
    dataset = read(
        options.data,
        **reader_options(options.stack, options.columns, options.ends, options.missing, options.cohort),
    )
    pages = [] if options.out is None else [options.out / "results.json", options.out / "report.html"]
    for page in pages:
        writable_file(page)
    names = ("stochastic", "stats", "reads", "output", "output_name")
    chosen = {name: getattr(options, name) for name in names}
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value}
    given["seconds"] = options.policy_seconds
    policies = {
        name: load_policy(file, trust=options.trust, num_actions=dataset.num_actions, **given)
        for name, file in files.items()
    }
    with ProgressLine(options.quiet) as show:
        comparison = compare(
            dataset,
            policies,
            discount=options.discount,
            methods=methods or None,
            horizon=options.horizon,
            level=options.level,
            seed=options.seed,
            folder=None if options.out is None else options.out / "checkpoints",
            save_every=options.save_every,
            show=show,
            device=options.device,
            tensorboard=options.tensorboard,
            representation=options.representation,
            rollouts=None if rollouts is None else dict.fromkeys(policies, rollouts),
            ray=options.ray,
            workers_per_training=options.workers_per_training,
            trained_on_log=options.trained_on_log,
            next_steps=options.next,
            title=options.title or "",
            quiet=options.quiet,
            command=shlex.join(["bcrl", command, *argv]),
        )
    if pages:
        comparison.save(pages[0])
        write_report(comparison, pages[1])
    if options.json:
        print(comparison.to_json())
    else:
        print_comparison(comparison)
        for page in pages:
            print(printable(page))
    sys.stdout.flush()
    return failed(comparison, options.fail_on)


def failed(comparison: "Comparison", fail_on: str | None) -> int:
    """3 if the verdict on any policy is `fail_on` or worse, else 0."""
    order = ["trust", "caution", "distrust"]
    verdicts = [comparison.headline(policy)[1] for policy in comparison.policies]
    bad = fail_on is not None and any(order.index(one) >= order.index(fail_on) for one in verdicts)
    return 3 if bad else 0


def name_methods(texts: Sequence[str]) -> dict[str, Any]:
    """Methods by name: NAME=METHOD, or the method's own text."""
    from bcrl.methods import parse_method

    named: dict[str, Any] = {}
    for text in texts:
        name, equals, method = text.partition("=")
        if not equals or not name.strip().replace(" ", "").replace("-", "").isalnum():
            name, method = ("random features" if text.strip() == "random" else text), text
        name = shown_name(name.strip())
        if name in named:
            raise BadInput(f"Two methods are called {name!r}; give them different names: {name}2={method}.")
        named[name] = parse_method(method)
    return named


def shown_name(name: str) -> str:
    """A name for table, page and JSON: what cannot be printed is escaped, a long one ends in a hash."""
    text = printable(name)
    if len(text) <= _LONGEST_NAME:
        return text
    mark = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{text[: _LONGEST_NAME - 11]}...{mark}"


def name_policies(files: Sequence[str]) -> Mapping[str, str]:
    """Policies by name: NAME=FILE, or the file's own name; two policies with the same name are refused."""
    named: dict[str, str] = {}
    for item in files:
        name, equals, path = item.partition("=")
        if not equals or "/" in name or os.path.exists(item):
            name, path = Path(item).stem, item
        name = shown_name(name)
        if name in named:
            raise BadInput(
                f"Two policies are called {name!r}; give them different names: "
                f"{name}-a={named[name]} {name}-b={path}."
            )
        named[name] = path
    if not named:
        raise BadInput("No policy file given; pass at least one, e.g. policy.onnx.")
    return named
