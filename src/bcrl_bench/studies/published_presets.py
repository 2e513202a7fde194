"""The paper's preset as it is, the same until its value is flat, and our default, where the value is known.

    python -m bcrl_bench.studies.published_presets                 the cells that are missing, then the table
    python -m bcrl_bench.studies.published_presets tabular/flat    these cells first, and no others

About 20 core-minutes; writes results/published_presets.json and .md and goes on where it stopped. One log of
4,000 rows a world, one seed: nothing follows about which is better.

    paper           512 features, 512 units, 200 passes: 200 updates here, for 4,000 rows make one batch
    paper-narrow    the same on few features and 64 units: whether width decides what 200 updates give
    flat            paper-narrow at a hundred times its rates, until the value moves by less than 1 % over
                    `PATIENCE` evaluations and nothing gets better, or for `MOST_STEPS` updates
    ...-G           with the class G against double sampling
    ...-E, -beta    E-design as a term, and as the constraint R_E >= beta/2; the paper gives no numbers
    default         ours

A wide update takes 0.5 core-seconds, so at published rates, where M's entries move by 1e-5 an update, flat
would take hours a cell, and `released()` with its 20,000 updates three: they are not run.

eps_nu is for W = ||theta||. The estimate's own has the noise of transitions in it; "exact" is from the table
of transition probabilities, with the log's shares of (s, a).
"""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bcrl.data.dataset import Dataset
from bcrl.estimate import Estimate
from bcrl.estimators.lspe.method import LSPE
from bcrl.estimators.lspe.value import LinearValue
from bcrl.linear import EpsilonNu, Moments, bellman_residual, epsilon_nu
from bcrl.representations.bellman_complete import (
    BellmanComplete,
    Design,
    DoubleSampling,
    Stopping,
)
from bcrl_bench.repository import RESULTS
from bcrl_bench.studies.study import Row, Study, ask_world
from bcrl_bench.worlds import TabularWorld, low_rank, random_tabular, rich_lqr

COMMAND = "python -m bcrl_bench.studies.published_presets"
STUDY = Study("published_presets", COMMAND, key=("world", "form"))
EPISODES, LENGTH, SEED = 80, 50, 0
MOST_STEPS, EVALUATIONS, PATIENCE = 6000, 30, 5


@dataclass(frozen=True)
class Place:
    """A world, and how many features its narrow forms have: fewer than it has pairs (s, a)."""

    make: Callable[[], Any]
    dim: int


WORLDS = {
    "nonlinear_lqr": Place(rich_lqr, 64),
    "low_rank": Place(low_rank, 16),
    "tabular": Place(random_tabular, 8),
}
ADDED: dict[str, dict[str, Any]] = {
    "": {},
    "-G": {"double_sampling": DoubleSampling()},
    "-E": {"design": Design("E", 1.0)},
    "-beta": {"design": Design("E", constraint=0.01)},
}


def representation(form: str, dim: int) -> BellmanComplete:
    """The recipe of a form."""
    if form == "default":
        return BellmanComplete()
    base, dash, rest = form.partition("-")
    narrow = rest.removeprefix("narrow") if rest.startswith("narrow") else None
    whole = replace(BellmanComplete.paper(), **ADDED[dash + rest if narrow is None else narrow])
    if base == "paper" and narrow is None:
        return whole
    small = replace(whole, dim=dim, head=replace(whole.head, hidden=64), chunk=None)
    return small if base == "paper" else until_flat(small)


def until_flat(recipe: BellmanComplete) -> BellmanComplete:
    """The same at a hundred times its rates, until nothing moves."""
    assert recipe.inner is not None
    return replace(
        recipe,
        lr=100.0 * recipe.lr,
        inner=replace(recipe.inner, lr=100.0 * recipe.inner.lr),
        epochs=None,
        steps=MOST_STEPS,
        evaluations=EVALUATIONS,
        stopping=Stopping(patience=PATIENCE),
    )


def wanted() -> list[tuple[str, str]]:
    """All cells, the cheap ones first."""
    random_worlds = ("tabular", "low_rank")
    return [
        *((world, form) for form in ("paper-narrow", "flat") for world in WORLDS),
        *((world, f"flat{added}") for world in random_worlds for added in ADDED if added),
        *((world, form) for form in ("default", "paper") for world in WORLDS),
        *(("tabular", f"paper{added}") for added in ADDED if added),
    ]


def cell(world_name: str, form: str) -> Row:
    """One evaluation; the error is relative to the truth at the log's own start states."""
    place = WORLDS[world_name]
    world = place.make()
    dataset = world.dataset(EPISODES, LENGTH, SEED)
    truth = float(world.v(dataset.observations["observation"][dataset.start_rows]).mean())
    recipe = representation(form, place.dim)
    # As in paper.toml: float32 pseudo-inverse, and nothing stands in for a blow-up.
    method = LSPE(recipe) if form == "default" else LSPE(recipe, solver="pinv32", fallback=None)
    clock = time.process_time()
    estimate = ask_world(method, world, dataset, SEED)
    seconds = time.process_time() - clock
    exact = exact_eps_nu(world, dataset, estimate) if isinstance(world, TabularWorld) else None
    numbers = {name: estimate.stats[name] for name in STATS}
    if exact is not None:
        numbers |= {"exact_eps_nu_low": exact.lower, "exact_eps_nu_high": exact.upper}
    return {
        "world": world_name,
        "form": form,
        "method": repr(method),
        "updates": int(estimate.curves["train/step"][-1]),
        "truth": truth,
        "value": _finite(estimate.value),
        "error": _finite(estimate.value / truth - 1.0),
        "status": estimate.status.value,
        "verdict": estimate.verdict,
        **{name: _finite(number) for name, number in numbers.items()},
        "core_seconds": round(seconds, 1),
    }


STATS = (
    "eps_nu_low",
    "eps_nu_high",
    "eps_nu_radius",
    "condition_number",
    "lambda_min",
    "features",
    "truncated_directions",
    "training_drift",
)


def exact_eps_nu(world: TabularWorld, dataset: Dataset, estimate: Estimate) -> EpsilonNu:
    """eps_nu of the estimate's features for its W, transitions and mean rewards from the world's tables."""
    function = estimate.value_function
    assert isinstance(function, LinearValue)
    states, actions = world.reward.shape
    pairs = np.repeat(np.arange(states), actions), np.tile(np.arange(actions), states)
    z = function.fitted.encode(function.template.keyed({"observation": world.observe(pairs[0])}))
    phi = function.fitted.features(z, dataset.action_matrix(pairs[1]))
    following = np.einsum("sa,sad->sd", world.target_table, phi.reshape(states, actions, -1))
    ahead = (1.0 - world.ends)[:, :, None] * (world.transition @ following)
    seen = dataset.observations["observation"][dataset.rows]
    rows = seen.argmax(axis=1) * actions + dataset.actions  # the codes are unit vectors
    moments = Moments.from_features(
        phi[rows],
        ahead.reshape(len(phi), -1)[rows],
        world.reward.reshape(-1)[rows],
        np.zeros(len(rows), dtype=bool),
    )
    return epsilon_nu(bellman_residual(moments, world.discount), estimate.stats["eps_nu_radius"])


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def page(rows: list[Row]) -> str:
    """results/published_presets.md."""
    head = (
        "| world | form | updates | value | truth | error | eps_nu | exact eps_nu | W | condition number | "
        "features unused | moved | core-seconds |"
    )
    lines = [
        "# The paper's preset where the value is known",
        "",
        f"`{COMMAND}`: what the forms are stands at its top.",
        "One log of 4,000 rows and one seed in each world: a look, no claim. *moved*: the value's range over",
        "the last half of training. *features unused*: directions that LSPE's pseudo-inverse left out.",
        "",
        head,
        "|---" * (head.count("|") - 1) + "|",
    ]
    order = list(WORLDS)
    for row in sorted(rows, key=lambda one: order.index(one["world"])):
        value = "diverged" if row["value"] is None else f"{row['value']:.3f}"
        error = "" if row["error"] is None else f"{row['error']:+.1%}"
        condition = "infinite" if row["condition_number"] is None else f"{row['condition_number']:.1e}"
        cells = [
            row["world"],
            row["form"],
            str(row["updates"]),
            value,
            f"{row['truth']:.3f}",
            error,
            _bracket(row, "eps_nu"),
            _bracket(row, "exact_eps_nu"),
            "" if row["eps_nu_radius"] is None else f"{row['eps_nu_radius']:.3g}",
            condition,
            f"{row['truncated_directions']:.0f} of {row['features']:.0f}",
            "" if row["training_drift"] is None else f"{row['training_drift']:.0%}",
            f"{row['core_seconds']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _bracket(row: Row, name: str) -> str:
    """Both ends, or one number where they are the same to three digits."""
    low, high = (row.get(f"{name}_{end}") for end in ("low", "high"))
    if low is None or high is None:
        return ""
    ends = dict.fromkeys(f"{end:.3g}" for end in (low, high))
    return " to ".join(ends)


def main(names: list[str]) -> None:
    chosen = [cell for cell in wanted() if not names or "/".join(cell) in names]
    rows = STUDY.run(chosen, cell)
    (RESULTS / "published_presets.md").write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
