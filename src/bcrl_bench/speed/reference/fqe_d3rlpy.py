"""d3rlpy's own FQE, run in d3rlpy's own environment by speed/fqe.py. Prints one line of JSON.

python fqe_d3rlpy.py export DATA.npz POLICY.onnx            build the policy, save it for both sides
python fqe_d3rlpy.py fit DATA.npz STEPS SEED                steps/s, and the value at the start states
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


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    command, data, *rest = sys.argv[1:]
    logged = load(data)
    found = export(logged, rest[0]) if command == "export" else fit(logged, int(rest[0]), int(rest[1]))
    print(json.dumps(found))
