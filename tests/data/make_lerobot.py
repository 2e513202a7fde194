"""The dataset in tests/data/lerobot, written by LeRobot's own library 0.4.4 (format v3.0).

In an environment of its own, without what LeRobot asks for beside torch 2.13:

    python3.11 -m venv /tmp/lerobot && /tmp/lerobot/bin/pip install -c constraints.txt torch==2.13.0
    /tmp/lerobot/bin/pip install --no-deps lerobot==0.4.4 torchvision==0.28.0
    /tmp/lerobot/bin/pip install accelerate av datasets deepdiff draccus einops jsonlines \
        'numpy<2.3' packaging pandas pillow pyarrow tqdm
    /tmp/lerobot/bin/python tests/data/make_lerobot.py tests/data/lerobot

Six episodes of 8 to 13 frames at 10 frames a second, of which two fail, in several files of each kind. State
(x, y, step) and action are known by formula; the camera shows a grey that rises by 15 a step and begins at 10
times the episode's number.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import torch

# PyPI's torchvision is compiled for CUDA; of its operators only the names are needed to import it.
OPERATORS = torch.library.Library("torchvision", "DEF")
for NAME in ("nms", "qnms"):
    OPERATORS.define(f"{NAME}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

FEATURES = {
    "observation.state": {"dtype": "float32", "shape": (3,), "names": ["x", "y", "step"]},
    "observation.images.front": {
        "dtype": "video",
        "shape": (64, 64, 3),
        "names": ["height", "width", "channels"],
    },
    "action": {"dtype": "float32", "shape": (2,), "names": ["dx", "dy"]},
    "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
    "next.success": {"dtype": "bool", "shape": (1,), "names": None},
}


def main(place):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    folder = Path(place)
    shutil.rmtree(folder, ignore_errors=True)
    data = LeRobotDataset.create("bcrl/six", 10, FEATURES, root=folder, robot_type="none", vcodec="h264")
    data.meta.info["video_files_size_in_mb"] = 0.008  # a few episodes a file
    for episode in range(6):
        length, success = 8 + episode, episode not in (1, 4)
        for step in range(length):
            grey = np.full((64, 64, 3), 10 * episode + 15 * step, dtype=np.uint8)
            last = step == length - 1
            data.add_frame(
                {
                    "observation.state": np.array([episode + 0.1 * step, -step, step], dtype=np.float32),
                    "observation.images.front": grey,
                    "action": np.array([0.1, step], dtype=np.float32),
                    "next.reward": np.array([0.5 + last * success], dtype=np.float32),
                    "next.success": np.array([bool(last and success)]),
                    "task": "push" if episode < 3 else "pull",
                }
            )
        data.save_episode()
        if episode == 2:  # recording that goes on another day begins new files
            data.finalize()
            data = LeRobotDataset("bcrl/six", root=folder, vcodec="h264")
    data.finalize()


if __name__ == "__main__":
    main(sys.argv[1])
