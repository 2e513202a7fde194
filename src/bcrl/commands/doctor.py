"""`bcrl doctor`: is this data fit for evaluation, and does the policy fit it?"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bcrl.commands.parsing import parse
from bcrl.commands.reading import Ends, Missing, reader_options
from bcrl.errors import Gaps, Guess, in_shell, printable

if TYPE_CHECKING:
    from bcrl.data.dataset import Dataset
    from bcrl.doctor.findings import Finding


@dataclass(kw_only=True)
class Doctor:
    """Is this data fit for evaluation, and does the policy fit it? Exit code 2 if not; warnings are printed.

    Example: bcrl doctor logs/ --policy policy.onnx
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Dataset: .npz, .hdf5, .csv, .parquet, a folder, or minari:ID."""
    policy: str | None = None
    """Policy file to check too: .onnx, .safetensors, or with --trust an SB3 .zip or a torch.export .pt2."""
    stack: int | None = None
    """Frames stacked for pixel observations; if left out, what the data says."""
    columns: str | None = None
    """Names of a file's arrays or a table's columns: reward=outcome,action=dose, or JSON, or a JSON file,
    such as '{"reward": "outcome", "observation": ["x", "v"]}'."""
    ends: Ends | None = None
    """What the last row of an episode is if the data marks no end: the world's end (terminated), the
    record's (truncated), or a row to leave out (drop)."""
    missing: Missing | None = None
    """For tables: observations that are not there are refused, carried forward in the episode, or take the
    column's mean."""
    output: Literal["actions", "probabilities", "logits", "q_values"] | None = None
    """What the policy file gives: actions, or scores of discrete actions."""
    output_name: str | None = None
    """Output of an exported graph that holds it, if there are several."""
    verify: tyro.conf.FlagCreatePairsOff[bool] = False
    """Compare a bcrl folder with the hash in its header."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the findings as JSON."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Load policy files that can run code (SB3 zips, torch.export)."""
    stochastic: tyro.conf.FlagCreatePairsOff[bool] = False
    """Check the random policy that a file describes, not its most likely action."""
    stats: Path | None = None
    """VecNormalize statistics of an SB3 policy."""
    reads: str | None = None
    """Observation key that the policy reads."""
    policy_seconds: float = 300.0
    """Time for one call of the policy; a longer one is an error."""


def main(argv: Sequence[str]) -> int:
    options = parse(Doctor, "doctor", argv)
    from bcrl.doctor import examine

    verify = {"verify": True} if options.verify else {}
    asked = reader_options(options.stack, options.columns, options.ends, options.missing)
    try:
        dataset = _read_quietly(options.data, **asked, **verify)
    except Gaps as error:
        for gap in error.found if len(error.found) > 1 and not options.json else ():
            print(printable(f"   error: {in_shell(gap)}"))
        raise
    policy = None
    if options.policy is not None:
        from bcrl.policies import load_policy

        told: dict[str, Any] = {
            "stochastic": options.stochastic,
            "stats": options.stats,
            "reads": options.reads,
        }
        policy = load_policy(
            options.policy,
            trust=options.trust,
            num_actions=dataset.num_actions,
            seconds=options.policy_seconds,
            output=options.output,
            output_name=options.output_name,
            **{name: value for name, value in told.items() if value},
        )
    findings = examine(dataset, policy)
    if options.json:
        _print_json(dataset, findings)
    else:
        _print_text(dataset, findings)
    return 2 if any(finding.severity == "error" for finding in findings) else 0


def _read_quietly(data: str, **options: Any) -> "Dataset":  # noqa: ANN401 - what load_dataset takes
    """The data; what the reader guessed is among the findings."""
    from bcrl.data.sources import load_dataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Guess)
        return load_dataset(data, **options)


def _print_json(dataset: "Dataset", findings: "list[Finding]") -> None:
    import json

    summary = {"data": dataset.source, "episodes": dataset.num_episodes, "transitions": len(dataset)}
    print(json.dumps(summary | {"findings": [asdict(finding) for finding in findings]}, indent=1))


def _print_text(dataset: "Dataset", findings: "list[Finding]") -> None:
    keys = ", ".join(f"{k} {tuple(v.shape[1:])} {v.dtype}" for k, v in dataset.observations.items())
    kind = (
        f"{dataset.num_actions} discrete actions"
        if dataset.discrete
        else f"actions {dataset.actions.shape[1:]}"
    )
    rows = f"{dataset.num_episodes} episodes, {len(dataset)} transitions"
    print(printable(f"{dataset.source}: {rows}; {keys}; {kind}"))
    for finding in findings:
        print(printable(f"{finding.severity:>8}: {in_shell(finding.what)}"))
        print(printable(f"          where: {finding.where}. {in_shell(finding.do)}"))
    counts = {name: sum(f.severity == name for f in findings) for name in ("error", "warning", "note")}
    verdict = "not fit for evaluation" if counts["error"] else "fit for evaluation"
    print(f"{verdict}: {', '.join(f'{count} {name}s' for name, count in counts.items())}")
