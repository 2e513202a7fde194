"""The same answers as before: evaluations of every method, recorded, and compared to the last bit.

    python -m bcrl_bench.studies.same_answers record results/same_answers.json  # on a commit that is believed
    python -m bcrl_bench.studies.same_answers check results/same_answers.json   # on one that must not move it

A redesign must not move a number. Bits are those of one kind of processor: on another, trainings drift apart
by rounding.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bcrl
from bcrl.estimators.fqe import Flat
from bcrl.estimators.model_based import Dreamer, OneStep

Case = Callable[[], Any]


class Gaussian:
    """A stochastic policy: -0.4 s with noise 0.2."""

    reads = None

    def sample(self, observations: Any, generator: np.random.Generator) -> np.ndarray:
        return -0.4 * observations[:, :1] + 0.2 * generator.normal(size=(len(observations), 1))

    def log_prob(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        z = (actions - -0.4 * observations[:, :1]) / 0.2
        return (-0.5 * z**2 - np.log(0.2 * np.sqrt(2 * np.pi))).sum(axis=1)


def vectors(seed: int = 0, episodes: int = 40, length: int = 25, log_prob: bool = False) -> bcrl.Dataset:
    """A point that noise moves; it ends beyond 3."""
    g = np.random.default_rng(seed)
    columns: dict[str, list] = {name: [] for name in ("s", "a", "r", "after", "end", "cut", "p")}
    for _ in range(episodes):
        x = g.normal(size=2)
        for t in range(length):
            mean = -0.3 * x[:1]
            a = mean + 0.4 * g.normal(size=1)
            after = 0.9 * x + np.array([0.5, 0.1]) * a + 0.1 * g.normal(size=2)
            end = bool(np.abs(after).max() > 2.5)
            for name, value in zip(
                columns,
                (
                    x,
                    a,
                    1 - x @ x - 0.1 * a @ a,
                    after,
                    end,
                    t == length - 1 and not end,
                    -0.5 * ((a - mean)[0] / 0.4) ** 2 - np.log(0.4 * np.sqrt(2 * np.pi)),
                ),
                strict=True,
            ):
                columns[name].append(value)
            x = after
            if end:
                break
    c = {name: np.array(values) for name, values in columns.items()}
    return bcrl.Dataset.from_arrays(
        observations=c["s"],
        actions=c["a"],
        rewards=c["r"],
        next_observations=c["after"],
        terminated=c["end"],
        truncated=c["cut"],
        log_prob=c["p"] if log_prob else None,
    )


def discrete(seed: int = 1, episodes: int = 60, length: int = 12, log_prob: bool = True) -> bcrl.Dataset:
    """Three actions push a point left, nowhere, right."""
    g = np.random.default_rng(seed)
    s, a, r, after = [], [], [], []
    for _ in range(episodes):
        x = g.normal(size=2)
        for _ in range(length):
            u = int(g.integers(3))
            s.append(x), a.append(u), r.append(float(np.tanh(x[0]) + 0.2 * u))
            x = 0.8 * x + 0.3 * (u - 1) + 0.1 * g.normal(size=2)
            after.append(x)
    end = np.arange(len(r)) % length == length - 1
    return bcrl.Dataset.from_arrays(
        observations=np.array(s),
        actions=np.array(a),
        rewards=np.array(r),
        next_observations=np.array(after),
        terminated=end,
        log_prob=np.full(len(r), np.log(1 / 3)) if log_prob else None,
        cluster=np.repeat(np.arange(episodes // 2), 2),
    )


def pixels(seed: int = 2, episodes: int = 12, length: int = 20) -> bcrl.Dataset:
    """A bright square of 48x48 that the action moves sideways."""
    g = np.random.default_rng(seed)
    frames, a, r = [], [], []
    for _ in range(episodes):
        x = g.uniform(8, 40)
        for t in range(length + 1):
            frame = np.zeros((48, 48, 3), np.uint8)
            frame[20:28, int(x) - 4 : int(x) + 4] = 200
            frames.append(frame)
            if t < length:
                u = g.uniform(-1, 1)
                a.append([u]), r.append(1 - abs(x - 24) / 24)
                x = float(np.clip(x + 3 * u, 5, 43))
    each, steps = [], length + 1
    for e in range(episodes):
        each.append(
            dict(
                observations=np.array(frames[e * steps : (e + 1) * steps]),
                actions=np.array(a[e * length : (e + 1) * length]),
                rewards=np.array(r[e * length : (e + 1) * length]),
                terminated=np.zeros(length, bool),
                truncated=np.arange(length) == length - 1,
            )
        )
    return bcrl.Dataset.from_episodes(each, stack=3)


def pull(x: np.ndarray) -> np.ndarray:
    return -0.5 * x[:, :1]


def push(x: np.ndarray) -> np.ndarray:
    return 0.1 * x[:, :1]


class Leans:
    """A discrete policy: mostly left."""

    reads = None

    def probabilities(self, observations: Any) -> np.ndarray:
        right = 0.1 * (observations[:, 0] > 0)
        return np.stack([0.5 + 0 * right, 0.2 + right, 0.3 - right], axis=1)


def still(x: np.ndarray) -> np.ndarray:
    return np.zeros((len(x), 1))


def polynomial(observations: Any, actions: np.ndarray) -> np.ndarray:
    s = observations
    one = np.ones((len(s), 1))
    return np.concatenate([one, s, actions, s**2, s * actions, actions**2], axis=1)


def cases() -> dict[str, Case]:
    """Every case by name; each returns a Comparison."""
    R = dataclasses.replace
    BC, LSPE, FQE = bcrl.BellmanComplete, bcrl.LSPE, bcrl.FQE
    both, alone = {"pull": pull, "push": push}, {"pull": pull}
    here = np.array([[0.5, -0.5], [1.0, 0.0], [0.0, 0.3]])

    def ask(make: Callable[[], bcrl.Dataset], policies: dict, method: Any, **more: Any) -> Case:
        question = {"discount": 0.95, "seed": 3} | more
        return lambda: bcrl.compare(make(), policies, methods={"m": method}, **question)

    small = BC(steps=60, dim=16, batch_size=256)
    image = BC(steps=6, dim=8, batch_size=64)
    return {
        "bcrl": ask(vectors, alone, LSPE(small)),
        "bcrl, two policies": ask(vectors, both, LSPE(small)),
        "bcrl, horizon": ask(vectors, alone, LSPE(small, repeats=1), horizon=15, discount=1.0),
        "bcrl, starts given": ask(vectors, alone, LSPE(small, repeats=1), starts=here),
        "bcrl, discrete": ask(discrete, {"leans": Leans()}, LSPE(small, repeats=1)),
        "bcrl, stochastic, cross, ball": ask(
            vectors, {"noisy": Gaussian()}, LSPE(small, repeats=1, split="cross", solver="ball", radius=30.0)
        ),
        "bcrl, pixels": ask(pixels, {"still": still}, LSPE(image)),
        "bcrl, paper's terms": ask(
            vectors,
            both,
            LSPE(
                R(BC.paper(), epochs=6, dim=24, head=R(BC.paper().head, hidden=64), batch_size=128, lr=1e-3),
                repeats=1,
            ),
        ),
        "bcrl, released terms": ask(
            vectors,
            alone,
            LSPE(
                R(BC.released(epochs=4), dim=24, head=R(BC.released().head, hidden=64), batch_size=128),
                repeats=1,
            ),
        ),
        "curl": ask(vectors, alone, LSPE(bcrl.CURL(dim=24, steps=40), repeats=1)),
        "curl, pixels": ask(pixels, {"still": still}, LSPE(bcrl.CURL(dim=16, steps=4, batch_size=32))),
        "spr": ask(vectors, alone, LSPE(bcrl.SPR(dim=24, steps=40), repeats=1)),
        "spr, pixels": ask(pixels, {"still": still}, LSPE(bcrl.SPR(dim=16, steps=4, batch_size=16))),
        "random features, two policies, cross": ask(
            vectors, both, LSPE(bcrl.RandomFeatures(dim=80), split="cross", fallback=None)
        ),
        "random features, horizon, discrete": ask(
            discrete, {"leans": Leans()}, LSPE(bcrl.RandomFeatures(dim=80)), horizon=8, discount=0.99
        ),
        "given features": ask(vectors, both, LSPE(bcrl.GivenFeatures(polynomial))),
        "fqe": ask(vectors, both, FQE(steps=400, hidden=(32, 32), flat=Flat(check_every=50))),
        "fqe, discrete, horizon": ask(
            discrete,
            {"leans": Leans()},
            FQE(steps=300, hidden=(32, 32), flat=Flat(check_every=50)),
            horizon=8,
            discount=0.99,
        ),
        "fqe, stochastic, starts given": ask(
            vectors,
            {"noisy": Gaussian()},
            FQE(steps=300, hidden=(32, 32), flat=Flat(check_every=50), members=2),
            starts=here,
        ),
        "fqe, pixels": ask(
            pixels,
            {"still": still},
            FQE(steps=8, batch_size=32, hidden=(32,), members=2, flat=Flat(check_every=2)),
        ),
        "fqe as in d3rlpy": ask(
            discrete, {"leans": Leans()}, R(FQE.d3rlpy(steps=200, discrete=True), hidden=(32, 32))
        ),
        "importance, logged probabilities": ask(discrete, {"leans": Leans()}, bcrl.ImportanceSampling()),
        "importance, cloned": ask(
            vectors, {"noisy": Gaussian()}, bcrl.ImportanceSampling(kind="trajectory"), horizon=5
        ),
        "doubly robust": ask(
            lambda: vectors(log_prob=True),
            {"noisy": Gaussian()},
            bcrl.DoublyRobust(q=FQE(steps=200, hidden=(32, 32), flat=Flat(check_every=50), members=2)),
        ),
        "doubly robust on linear Q": ask(
            discrete, {"leans": Leans()}, bcrl.DoublyRobust(q=LSPE(bcrl.RandomFeatures(dim=60)))
        ),
        "dice": ask(vectors, both, bcrl.FlowDICE(steps=100, hidden=32)),
        "dice, discrete, as published": ask(discrete, {"leans": Leans()}, bcrl.BestDICE(steps=100)),
        "dice, pixels": ask(pixels, {"still": still}, bcrl.FlowDICE(steps=30, hidden=16, encoder_steps=5)),
        "model": ask(vectors, both, bcrl.ModelBased(one_step=OneStep(steps=120, hidden=32))),
        "model, discrete, horizon": ask(
            discrete,
            {"leans": Leans()},
            bcrl.ModelBased(one_step=OneStep(steps=120, hidden=32)),
            horizon=8,
            discount=1.0,
        ),
        "model, pixels": ask(
            pixels,
            {"still": still},
            bcrl.ModelBased(
                dreamer=Dreamer(
                    steps=4,
                    batch_size=2,
                    length=8,
                    deter=16,
                    hidden=16,
                    stoch=4,
                    classes=4,
                    cnn_depth=4,
                ),
                num_rollouts=4,
            ),
        ),
    }


def answers(case: Case) -> dict[str, Any]:
    """Numbers of every policy of one case."""
    began = time.process_time()
    comparison = case()
    found: dict[str, Any] = {}
    for policy, row in comparison.estimates.items():
        e = row["m"]
        found[policy] = {
            "value": e.value,
            "interval": None if e.interval is None else [e.interval.low, e.interval.high],
            "standard_error": e.standard_error,
            "verdict": e.verdict,
            "status": str(e.status.value),
            # Also where the comparison withholds it: what is compared here is arithmetic.
            "difference": None if comparison.logged is None else e.value - comparison.logged.value,
        }
    found["core-seconds"] = round(time.process_time() - began, 2)
    return found


def processor() -> str:
    """What decides the last bits: the widest vector unit that the matrix products use."""
    return str(torch.backends.cpu.get_cpu_capability())


def main(arguments: list[str]) -> int:
    action, path = arguments[0], Path(arguments[1])
    only = arguments[2:]
    torch.set_num_threads(1)
    chosen = {name: case for name, case in cases().items() if not only or any(word in name for word in only)}
    kept = json.loads(path.read_text()) if path.exists() else {"processor": processor(), "cases": {}}
    moved = []
    for name, case in chosen.items():
        found = json.loads(json.dumps(answers(case)))
        seconds = found.pop("core-seconds")
        if action == "record":
            kept["cases"][name] = found
            print(f"{name:45} {seconds:6.1f} s", flush=True)
            continue
        same = json.dumps(found) == json.dumps(kept["cases"][name])
        print(f"{'same ' if same else 'MOVED'} {name:45} {seconds:6.1f} s", flush=True)
        if not same:
            moved.append(name)
            print("   before", json.dumps(kept["cases"][name]), "\n   now   ", json.dumps(found), flush=True)
    if action == "record":
        path.write_text(json.dumps(kept, indent=1))
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
