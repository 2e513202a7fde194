"""DeepMind Control tasks as Gymnasium environments that give `pixels` and `state`.

One agent step is `action_repeat` control steps whose rewards are summed (Tassa et al. 2018; DrQ-v2 uses 2).
The state is dm_control's observation dict, each value raveled, joined in the dict's own order, float32.
dm_control's own clock is switched off and counted here instead, so that "the world ended" (its discount is 0:
`terminated`) and "we stopped looking" (`limit` agent steps: `truncated`) never mix, and so that the truth can
be simulated past the limit.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from dm_control import suite
from dm_control.mujoco import engine
from gymnasium import spaces

from bcrl.errors import BadInput, did_you_mean
from bcrl_bench.bits import same_quaternions

Rendering = Literal["fast", "faithful"]
FAST_FLAGS = {"shadow": False, "reflection": False}


def split_name(name: str) -> tuple[str, str]:
    """`finger-turn_hard` -> ("finger", "turn_hard")."""
    domain, _, task = name.partition("-")
    if (domain, task) not in suite.ALL_TASKS:
        hint = did_you_mean(name, [f"{d}-{t}" for d, t in suite.BENCHMARKING])
        raise BadInput(f"no task is called {name!r}; expected domain-task, such as cheetah-run. {hint}")
    return domain, task


def flatten(observation: dict[str, Any]) -> np.ndarray:
    """The observation dict's values, raveled and joined in its own order."""
    return np.concatenate([np.ravel(value) for value in observation.values()]).astype(np.float32)


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """MuJoCo 3 tells of deprecated attributes in dm_control's own models, through absl, at every load."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class ControlTask(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """`ControlTask("cheetah-run")`; `pixels=None` renders nothing and costs nothing; `limit=None` never
    truncates.
    """

    def __init__(
        self,
        name: str,
        *,
        pixels: int | None = 84,
        rendering: Rendering = "fast",
        action_repeat: int = 2,
        limit: int | None = 500,
    ) -> None:
        domain, task = split_name(name)
        if action_repeat < 1 or (limit is not None and limit < 1) or (pixels is not None and pixels < 8):
            raise BadInput(
                f"got action_repeat={action_repeat}, limit={limit}, pixels={pixels}; "
                "expected at least 1 repeat, 1 step and 8 pixels (or None)"
            )
        self.name, self.pixels, self.rendering = name, pixels, rendering
        self.action_repeat, self.limit = action_repeat, limit
        with _without_notices():
            self.control = suite.load(domain, task, task_kwargs={"time_limit": float("inf"), "random": 0})
        self._camera_id = 2 if domain == "quadruped" else 0
        self._camera: engine.Camera | None = None
        self._steps = 0
        low, high = self.control.action_spec().minimum, self.control.action_spec().maximum
        self.action_space: spaces.Box = spaces.Box(
            low.astype(np.float32), high.astype(np.float32), dtype=np.float32
        )
        width = flatten(self.control.reset().observation).shape
        self.state_dim, self.action_dim = width[0], len(low)
        parts: dict[str, spaces.Space[Any]] = {"state": spaces.Box(-np.inf, np.inf, width, np.float32)}
        if pixels is not None:
            parts["pixels"] = spaces.Box(0, 255, (pixels, pixels, 3), np.uint8)
        self.observation_space: spaces.Dict[Any] = spaces.Dict(parts)  # type: ignore[assignment]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """A seed fixes the start state and every random number the task draws from then on."""
        super().reset(seed=seed)
        if seed is not None:
            self.control.task._random = np.random.RandomState(
                seed
            )  # the suite offers no setter after loading
        self._steps = 0
        with same_quaternions():
            return self._observe(self.control.reset().observation), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Repeat the action, sum the rewards; stop within the repeat when the world ends."""
        reward, ended, discount = 0.0, False, 1.0
        for _ in range(self.action_repeat):
            step = self.control.step(np.asarray(action, dtype=np.float64))
            assert step.reward is not None and step.discount is not None
            reward, discount, ended = reward + float(step.reward), float(step.discount), step.last()
            if ended:
                break
        self._steps += 1
        terminated = ended and discount == 0.0
        truncated = not terminated and (ended or self._steps == self.limit)
        return self._observe(step.observation), reward, terminated, truncated, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        """The current frame, (pixels, pixels, 3) uint8."""
        if self.pixels is None:
            raise BadInput("this task was made with pixels=None; make it with pixels=84 to render frames")
        if self._camera is None:
            self._camera = self._open_camera(self.pixels)
        flags = FAST_FLAGS if self.rendering == "fast" else None
        return np.array(self._camera.render(render_flag_overrides=flags))

    def close(self) -> None:
        """Free the renderer."""
        self._camera = None
        self.control.close()

    def _open_camera(self, size: int) -> engine.Camera:
        physics = self.control.physics
        if self.rendering == "fast":  # read when the context is made, so before the first frame
            physics.model.vis.quality.shadowsize = 0
            physics.model.vis.quality.offsamples = 0
        return engine.Camera(physics, height=size, width=size, camera_id=self._camera_id)

    def _observe(self, observation: dict[str, Any]) -> dict[str, np.ndarray]:
        parts = {"state": flatten(observation)}
        if self.pixels is not None:
            parts["pixels"] = self.render()
        return parts


def task_names() -> Sequence[str]:
    """Every task of the suite's benchmarking set."""
    return [f"{domain}-{task}" for domain, task in suite.BENCHMARKING]
