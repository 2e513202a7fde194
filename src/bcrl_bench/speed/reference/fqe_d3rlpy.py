"""d3rlpy's own FQE, run in d3rlpy's own environment by speed/fqe.py. Prints one line of JSON.

python fqe_d3rlpy.py export DATA.npz POLICY.onnx            build the policy, save it for both sides
python fqe_d3rlpy.py fit DATA.npz STEPS SEED                steps/s, and the value at the start states
python fqe_d3rlpy.py curve LOG.npz STEPS EVERY DISCOUNT     core-seconds and value after every EVERY steps
"""

import functools
import json
import sys
import time

import d3rlpy
import numpy as np
import torch

THREADS, BATCH = 1, 256


def load(path):
    """Episodes of equal length, cut off by time; d3rlpy uses no transition out of an episode's last
    observation.
    """
    arrays = np.load(path)
    episodes, length = arrays["rewards"].shape
    ends = np.zeros((episodes, length), dtype=np.float32)
    ends[:, -1] = 1.0
    return d3rlpy.dataset.MDPDataset(
        arrays["observations"].reshape(episodes * length, -1),
        arrays["actions"].reshape(episodes * length, -1),
        arrays["rewards"].reshape(-1),
        np.zeros(episodes * length, dtype=np.float32),
        timeouts=ends.reshape(-1),
    )


def policy(dataset):
    d3rlpy.seed(0)
    built = d3rlpy.algos.TD3Config().create(device=False)
    built.build_with_dataset(dataset)
    return built


def export(dataset, path):
    # d3rlpy 2.8.1 hands a traced function to torch.onnx.export, which torch 2.9 and later take by the older
    # exporter only.
    torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)
    policy(dataset).save_policy(path)
    return {"version": d3rlpy.__version__}


def fit(dataset, steps, seed):
    target = policy(dataset)
    d3rlpy.seed(seed)
    fqe = d3rlpy.ope.FQE(algo=target, config=d3rlpy.ope.FQEConfig(batch_size=BATCH))
    began = time.process_time()
    fqe.fit(
        dataset,
        n_steps=steps,
        n_steps_per_epoch=steps,
        save_interval=2,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    seconds = time.process_time() - began
    value = d3rlpy.metrics.InitialStateValueEstimationEvaluator()(fqe, dataset)
    return {"steps_per_core_second": steps / seconds, "value": value}


class KnownPolicy:
    """A policy by what it does at every observation of a log: its actions, or their probabilities."""

    def __init__(self, seen, does, discrete):
        self.rows = {key.tobytes(): row for row, key in enumerate(np.ascontiguousarray(seen))}
        self.does, self.discrete, self.seconds = torch.from_numpy(does), discrete, 0.0
        self.impl = self  # what FQE asks for actions

    def at(self, observations):
        # After a termination d3rlpy shows zeros, whose value it does not use: any action will do.
        return self.does[[self.rows.get(key.tobytes(), 0) for key in np.ascontiguousarray(observations)]]

    def predict_best_action(self, observations):
        began = time.process_time()
        does = self.at(observations.numpy())
        actions = torch.multinomial(does, 1)[:, 0] if self.discrete else does
        self.seconds += time.process_time() - began
        return actions


def curve(log, steps, every, discount):
    d3rlpy.seed(0)
    dataset = d3rlpy.dataset.MDPDataset(
        *(log[name] for name in ("observations", "actions", "rewards")),
        log["terminated"].astype(np.float32),
        timeouts=log["truncated"].astype(np.float32),
    )
    discrete = log["actions"].dtype.kind in "iu"
    policy = KnownPolicy(log["seen"], log["does"], discrete)
    made = d3rlpy.ope.DiscreteFQE if discrete else d3rlpy.ope.FQE
    fqe = made(algo=policy, config=d3rlpy.ope.FQEConfig(gamma=discount))
    looking, found = 0.0, []
    settings = {"save_interval": steps, "show_progress": False}
    settings["logger_adapter"] = d3rlpy.logging.NoopAdapterFactory()
    began = time.process_time()
    for _ in fqe.fitter(dataset, n_steps=steps, n_steps_per_epoch=every, **settings):
        now = time.process_time()
        found.append((now - began - looking - policy.seconds, value(fqe, policy, log["starts"])))
        looking += time.process_time() - now
    return {"curve": found}


def value(fqe, policy, starts):
    """Mean V of the starts, the expectation over a discrete policy's actions."""
    does = policy.at(starts).numpy()
    if not policy.discrete:
        return float(fqe.predict_value(starts, does).mean())
    q = [fqe.predict_value(starts, np.full(len(starts), action)) for action in range(does.shape[1])]
    return float((np.stack(q, axis=1) * does).sum(axis=1).mean())


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    command, data, *rest = sys.argv[1:]
    if command == "curve":
        found = curve(np.load(data), int(rest[0]), int(rest[1]), float(rest[2]))
    else:
        logged = load(data)
        found = export(logged, rest[0]) if command == "export" else fit(logged, int(rest[0]), int(rest[1]))
    print(json.dumps(found))
