"""The error budget: everything that can make the number wrong, in the reward's own unit, added up.

    V - V^ = E[sum_t discount^t (T Q^ - Q^)(s_t, a_t)]        under the policy

so an error of V^ is an error of sampling, or a Bellman error where the policy goes. The entries measure both,
each in its own way and none of them perfectly; they overlap, so they are no independent variances. Their plain
sum times one multiplier per method (made by bcrl_bench.proving.calibrate on families of worlds that are not
those it is judged on) is the half width of the honest interval.
"""

import math
from collections.abc import Mapping

import numpy as np

FLOOR = 0.01  # of the scale: no value is known better than that


def entries_of(numbers: Mapping[str, float], value: float, standard_error: float | None) -> dict[str, float]:
    """The entries of one estimate, by name, in the reward's unit.

    Args:
        numbers: the estimate's `stats`, with what `evidence.measured` added.
        value: the estimate.
        standard_error: its sampling error; None where the method has none.
    """
    get = {name.removeprefix("evidence/"): n for name, n in numbers.items() if name.startswith("evidence/")}
    if not get or not math.isfinite(value):
        return {"unknown": math.inf}
    scale = max(abs(value), get["scale"])
    cap = 2.0 * scale
    gaps = {name[5:]: abs(n - value) for name, n in get.items() if name.startswith("view ")}
    corrections = {name[11:]: abs(n) for name, n in get.items() if name.startswith("correction ")}
    logged = [abs(n) for name, n in get.items() if name.startswith("logged ")]
    bootstrapped = [gap for name, gap in gaps.items() if not name.startswith("returns")]
    returns = [gap for name, gap in gaps.items() if name.startswith("returns")]
    effective = np.median([n for name, n in get.items() if name.startswith("effective ")])
    noise = get.get("td_rms", get["return_spread"] / math.sqrt(max(get["lifetime"], 1.0)))
    known = numbers.get("self_check_gap", math.nan)
    entries = {
        "sampling": 1.96 * standard_error if standard_error is not None else 0.0,
        "Bellman error": max(corrections.values()) if corrections else max(bootstrapped),
        "other views": float(np.median(list(gaps.values()))),
        "logged returns": min(returns) if returns else 0.0,
        "known answer": abs(known) if math.isfinite(known) else float(np.median(logged)) if logged else 0.0,
        "blind": noise * math.sqrt(get["inputs"] / get["rows"] / max(float(effective), 1e-6)) * get["lifetime"],
        "unlike actions": get["unsupported"] * get["scale"],
        "floor": FLOOR * scale,
    }
    return {name: min(amount, cap) for name, amount in entries.items()}
