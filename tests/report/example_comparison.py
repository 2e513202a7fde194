"""A comparison as cheetah-run gives it: two policies, three methods, one diverged, one truth known."""

from dataclasses import replace

import numpy as np

from bcrl.comparison import Comparison, Difference, picture
from bcrl.estimate import Budget, Check, Entry, Estimate, Interval, Status
from bcrl.inference.budget import with_decisions

DISCOUNT = 0.99


def _checks(radius: float, beyond: float, bellman: float, agreement: float) -> tuple[Check, ...]:
    def verdict(value: float, caution: float, distrust: float) -> str:
        return "trust" if value < caution else "caution" if value < distrust else "distrust"

    covers = "covers" if beyond < 0.05 else "hardly covers"
    return (
        Check(
            "spectral_radius", radius, 1.0, verdict(radius, 0.999, 1.0),
            f"The evaluation {'contracts' if radius < 1 else 'blows up'}: spectral radius {radius:.3f}, "
            "below 1 is needed.",
        ),
        Check(
            "leverage_beyond_data", beyond, 0.05, verdict(beyond, 0.05, 0.4),
            f"The data {covers} the policy: {100 * beyond:.0f} % of its state-actions lie where fewer than 1 "
            "% of the data lie.",
        ),
        Check(
            "completeness", bellman, 0.1, verdict(bellman, 0.1, 0.5),
            f"The features can express {100 * (1 - bellman):.0f} % of what one more step of the policy adds.",
        ),
        Check(
            "behaviour_self_check", agreement, 2.0, verdict(agreement, 2.0, 5.0),
            f"On the logging policy itself the method is {agreement:.1f} standard errors from the logged "
            "returns.",
        ),
    )  # fmt: skip


def _curves(
    rng: np.random.Generator, value: float, radius: float, shift: float, fqe: bool
) -> dict[str, list[float]]:
    steps = np.arange(1, 900)
    loss = 0.6 * np.exp(-np.arange(2000) / 260) + 0.02 * rng.gamma(2.0, 1.0, 2000)
    time = value * (0.62 + 0.5 * np.exp(-(((np.arange(500) - 120) / 160.0) ** 2))) + rng.normal(0, 0.4, 500)
    curves = {
        "value_over_time": time.tolist(),
        "train/step": np.arange(0, 20000, 10.0).tolist(),
        "train/loss": loss.tolist(),
    }
    if fqe:
        drift = value * (1 + 0.6 * np.exp(-np.arange(2000) / 350) * np.sin(np.arange(2000) / 120))
        return {**curves, "train/value": drift.tolist()}
    if radius < 1:
        curve = value * (1 - radius**steps)
    else:
        curve = 24 + 6.0 * radius ** (1.6 * steps) * np.sign(np.sin(steps / 40.0) + 0.6)
    return {
        **curves,
        "lspe": curve.tolist(),
        "singular_values": np.geomspace(1.0, 1e-3 if radius < 1 else 1e-8, 256).tolist(),
        "leverage_data": rng.gamma(4.0, 64.0, 4000).tolist(),
        "leverage_policy": (rng.gamma(4.0, 64.0, 4000) * np.exp(rng.normal(shift, shift / 2, 4000))).tolist(),
        "train/condition_number": (1e5 * np.exp(-np.arange(2000) / 300) + 800).tolist(),
    }


def _estimate(
    rng: np.random.Generator,
    method: str,
    value: float,
    error: float,
    radius: float,
    shift: float,
    numbers: tuple,
) -> Estimate:
    fqe = method.startswith("FQE")
    status = Status.DIVERGED if radius >= 1 else Status.LIMIT if fqe else Status.CONVERGED
    checks = _checks(radius, *numbers)
    return Estimate(
        value=value,
        method=method,
        discount=DISCOUNT,
        interval=Interval(value - 1.97 * error, value + 1.97 * error),
        standard_error=error,
        per_start=rng.normal(value, 3.0, 40),
        influence=rng.normal(0, error / np.sqrt(400), 400),
        status=status,
        checks=checks[1:] if fqe else checks,
        curves=_curves(rng, min(value, 100.0), radius, shift, fqe),
        stats={} if fqe else {"spectral_radius": radius, "lambda_min": 1e-3},
        timings={"representation": 41.2, "evaluation": 1.3}
        if not fqe
        else {"training": 212.0, "evaluation": 0.2},
        provenance={"seed": 7, "method": method},
    )


def _scene(step: float) -> np.ndarray:
    """A 48 x 48 picture of a blob over ground, good enough to look at."""
    rows, columns = np.mgrid[0:48, 0:48]
    image = np.zeros((48, 48, 3))
    image[:] = (176, 196, 214)
    image[rows > 36] = (92, 104, 92)
    image[((rows - 30 - 4 * np.sin(step)) ** 2 + (columns - 8 - 4 * step) ** 2) < 36] = (196, 120, 60)
    return image.astype(np.uint8)


def _pictures(rng: np.random.Generator) -> list[dict]:
    real = [_scene(0.8 * k) for k in range(8)]
    blurred = [
        np.clip(f + rng.normal(0, 4 + 3 * k, f.shape), 0, 255).astype(np.uint8) for k, f in enumerate(real)
    ]
    rows = [
        {"label": "real", "frames": [picture(f) for f in real]},
        {"label": "predicted", "frames": [picture(f) for f in blurred]},
    ]
    return [{"title": "Open-loop prediction, every second step", "rows": rows}]


def example(*, first: str = "new actor", second: str = "bold actor", pictures: bool = True) -> Comparison:
    """The comparison; names of the policies can be given."""
    rng = np.random.default_rng(7)
    a, b = first, second
    good, poor = (0.02, 0.04, 0.7), (0.46, 0.31, 2.6)
    estimates = {
        a: {
            "bcrl": _estimate(rng, "LSPE(BellmanComplete())", 62.1, 1.75, 0.984, 0.1, good),
            "random features": _estimate(
                rng, "LSPE(RandomFeatures())", 58.4, 2.9, 0.981, 0.4, (0.09, 0.17, 1.2)
            ),
            "fqe": _estimate(rng, "FQE()", 66.0, 4.4, 0.0, 0.1, (0.02, 0.14, 2.4)),
        },
        b: {
            "bcrl": _estimate(rng, "LSPE(BellmanComplete())", 47.9, 7.2, 0.993, 1.2, (0.31, 0.12, 2.6)),
            "random features": _estimate(rng, "LSPE(RandomFeatures())", 3.1e12, 8e11, 1.019, 1.6, poor),
            "fqe": _estimate(rng, "FQE()", 81.5, 3.6, 0.0, 1.2, (0.46, 0.38, 5.4)),
        },
    }  # fmt: skip
    logged = Estimate(
        value=42.3, method="logged returns", discount=DISCOUNT,
        interval=Interval(40.1, 44.5), standard_error=1.1,
        checks=(Check("episodes", 400, 30, "trust", "The value rests on 400 episodes."),),
    )  # fmt: skip
    model = estimates[a]["fqe"]
    if pictures:
        estimates[a]["fqe"] = Estimate(
            **{**vars(model), "provenance": {**model.provenance, "pictures": _pictures(rng)}}
        )
    return Comparison(
        estimates=estimates,
        logged=logged,
        differences={
            a: {
                "bcrl": Difference(19.8, Interval(16.6, 23.0), 17.1, 0.99999, True),
                "random features": Difference(16.1, Interval(10.3, 21.9), 11.2, 0.9996, True),
                "fqe": Difference(23.7, Interval(14.8, 32.6), 16.3, 0.9999, False),
            },
            b: {
                "bcrl": Difference(5.6, Interval(-8.4, 19.6), -6.2, 0.784, True),
                "random features": Difference(3.1e12, Interval(1.5e12, 4.7e12), 1.8e12, 0.9999, False),
                "fqe": Difference(39.2, Interval(31.8, 46.6), 33.0, 0.9999, False),
            },
        },
        probability_best={
            "bcrl": {a: 0.972, b: 0.028}, "random features": {a: 0.0, b: 1.0}, "fqe": {a: 0.004, b: 0.996},
        },
        episodes_to_halve={
            a: {"bcrl": 1600, "random features": 1600, "fqe": 1600},
            b: {"bcrl": 1600, "random features": None, "fqe": 1600},
        },
        checks={
            a: (Check("methods agree", 1.2, 2.0, "trust", "The methods agree within their intervals."),),
            b: (
                Check(
                    "methods agree", 4.2, 2.0, "caution",
                    "bcrl says 47.9 and fqe says 81.5: they differ by 4.2 standard errors, so at least one "
                    "is wrong.",
                ),
            ),
        },
        truth={a: {"value": 63.0, "standard_error": 0.6}},
        dataset={
            "name": "cheetah-run, 25 % actor + 100 % actor",
            "episodes": 400,
            "transitions": 200_000,
            "keys": {"pixels": [64, 64, 3], "state": [17]},
            "reward_range": [0.0, 2.0],
            "hash": "3f9ac1d2e7b04586",
            "findings": [
                {
                    "level": "warning", "what": "3 episodes are exact copies of others",
                    "where": "episodes 12, 57, 58",
                    "do": "Drop them, or the interval is too narrow.",
                }
            ],
            "frames": [picture(_scene(k)) for k in range(6)] if pictures else [],
        },
        discount=DISCOUNT,
        command="bcrl compare data/cheetah-run-mixture --policy new=actor100.safetensors "
        "--policy bold=actor75.onnx --discount 0.99 --seed 7",
        versions={"bcrl": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.0"},
        seed=7,
    )  # fmt: skip


# Name, share of the half width, sentence, remedy.
_PARTS = (
    ("Bellman error", 0.36, "Other views would correct it by {}.", "Train longer."),
    ("sampling", 0.27, "Chance alone moves it by {}.", "Four times as many episodes halve it."),
    ("unlike actions", 0.14, "Of it {} is a guess: such actions were not logged.", "Log such actions."),
    ("other views", 0.1, "Simple methods differ from it by {}.", "Compare several methods."),
    ("unlike places", 0.06, "It lies {} beyond what was earned.", "Log episodes that go there."),
    ("past", 0.04, "What came before moves it by {}.", "Add the past to the observation."),
    ("floor", 0.03, "Nothing is known better than {}.", "Nothing makes this smaller."),
)


def budgeted_example(**names: str) -> Comparison:
    """The same with budgets: 7 % and 30 % by bcrl, none where it diverged, a fault of the log in one."""
    table = example(pictures=False, **names)
    halves = {"bcrl": (4.6, 14.3), "random features": (8.3, None), "fqe": (16.0, 41.0)}
    estimates = {
        policy: {name: _with_budget(e, halves[name][number]) for name, e in row.items()}
        for number, (policy, row) in enumerate(table.estimates.items())
    }
    return with_decisions(replace(table, estimates=estimates))


def _with_budget(estimate: Estimate, half: float | None) -> Estimate:
    if half is None:
        return estimate
    entries = tuple(
        Entry(name, share * half, meaning.format(f"{share * half:.3g}"), remedy)
        for name, share, meaning, remedy in _PARTS
    )
    around = Interval(estimate.value - half, estimate.value + half)
    checks = tuple(replace(check, binding=False) for check in estimate.checks)
    fault = Check("copies", None, None, "caution", "3 episodes are exact copies of others. Drop them.")
    return replace(
        estimate,
        budget=Budget(entries, around, 42.3, 1.4),
        checks=(fault, *checks) if estimate.value == 58.4 else checks,
    )
