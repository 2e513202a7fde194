"""BestDICE: how much more often than the log the target policy visits each (s, a), learned from transitions alone.

    max_{zeta >= 0} min_{Q, lambda}  (1 - g) E[Q(s0, pi)] + lambda + E_D[ zeta (alpha_r r + g Q(s', pi) - Q(s, a) - lambda) ]
                                     + alpha_q E_D[Q^2 / 2] - alpha_zeta E_D[zeta^2 / 2]

    V = sum_D zeta r / sum_D zeta / (1 - g)

Yang, Nachum, Dai, Li and Schuurmans, "Off-Policy Evaluation via the Regularized Lagrangian" (2020): with alpha_q = 0,
alpha_zeta = 1, zeta >= 0 and lambda the dual read-out is unbiased. DualDICE and GenDICE are other settings of the same
switches. Neither the logging policy nor the order of transitions is needed. Differences from dice_rl, whose rates and
sizes `.released()` keeps: scales, rates, averaging and terminations (dice_learner.py); the last layers are solved for exactly
at the end (dice_solve.py); and where a deterministic policy meets continuous actions, noise of `smoothing` logged standard
deviations is put on its actions, because the ratio that zeta stands for is infinite without it. The value is then that of
the noisy policy, which a check states.
"""

import time
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor, nn

from bcrl.data.dataset import Dataset
from bcrl.errors import BadInput
from bcrl.estimate import Estimate, FloatArray, Status
from bcrl.estimators.dice.checks import dice_checks, flow_residual
from bcrl.estimators.dice.encoder import EncoderLearner, columns_of, encode_rows, new_encoder, principal
from bcrl.estimators.dice.learner import DiceData, DiceLearner, DiceRule
from bcrl.estimators.dice.solve import Solution, solve_last_layers
from bcrl.estimators.weighting.weights import unit_interval
from bcrl.inference.checks import action_support as action_support_check
from bcrl.inference.support import action_support, states_of
from bcrl.networks import Activation, Encoder
from bcrl.policies.policy import TargetActions
from bcrl.printing import short_call
from bcrl.question import Question, Starts
from bcrl.training import Run, generators, train


@dataclass(frozen=True)
class BestDICE:
    """Stationary distribution correction by the regularised Lagrangian.

    Attributes:
        alpha_q, alpha_zeta: regularisers of Q and of zeta.
        alpha_r: weight of the reward in the Lagrangian.
        positive: zeta is the square of the network's output.
        normalised: lambda keeps the mean of zeta at 1.
        power: p of the regularisers |x|^p / p.
        smoothing: noise on a deterministic policy's continuous actions, in units of each logged action's standard deviation.
        hidden, layers, activation: shape of both critics.
        lr_q, lr_zeta: learning rates of Adam.
        momentum: its first decay rate.
        batch_size: transitions per update.
        steps: updates.
        cosine: let the rates fall to 0 by a half cosine.
        average: decay of the average over zeta's weights that is read out.
        clip_value: clip each gradient of the summed loss, as dice_rl does; None clips the norm of the mean's at 10.
        solve_last: solve for the critics' last layers exactly once the layers below are trained.
        keep_flow: then add what zeta lacks to keep the flow of Q's last layer, which may make it negative here and there.
        num_samples: actions drawn per observation from a stochastic policy of continuous actions.
        reads: observation keys to look at; None takes the pixels if there are any.
        encoder_steps, feature_dim: updates and width of the pixel encoder, which is learned first and then frozen.
    """

    alpha_q: float = 0.0
    alpha_zeta: float = 1.0
    alpha_r: float = 1.0
    positive: bool = True
    normalised: bool = True
    power: float = 2.0
    smoothing: float = 0.25
    hidden: int = 128
    layers: int = 3
    activation: Activation = "silu"
    lr_q: float = 3e-4
    lr_zeta: float = 3e-4
    momentum: float = 0.9
    batch_size: int = 256
    steps: int = 500
    cosine: bool = True
    average: float = 0.999
    clip_value: float | None = None
    solve_last: bool = True
    keep_flow: bool = True
    num_samples: int = 8
    reads: str | tuple[str, ...] | None = None
    encoder_steps: int = 1000
    feature_dim: int = 50

    __repr__ = short_call

    @classmethod
    def dualdice(cls, steps: int = 500) -> "BestDICE":
        """DualDICE (Nachum et al., 2019): no reward, no positivity, no normalisation."""
        return cls(alpha_r=0.0, positive=False, normalised=False, keep_flow=False, steps=steps)

    @classmethod
    def gendice(cls, steps: int = 500) -> "BestDICE":
        """GenDICE (Zhang et al., 2020): Q is regularised instead of zeta."""
        return cls(alpha_q=1.0, alpha_zeta=0.0, alpha_r=0.0, keep_flow=False, steps=steps)

    @classmethod
    def released(cls, steps: int = 100_000) -> "BestDICE":
        """Sizes and rates of dice_rl's run_neural_dice."""
        return cls(
            smoothing=0.0,
            hidden=64,
            activation="relu",
            lr_q=1e-4,
            lr_zeta=1e-4,
            batch_size=2048,
            steps=steps,
            cosine=False,
            average=0.0,
            clip_value=1.0,
            solve_last=False,
            keep_flow=False,
            num_samples=1,
        )

    def estimate(self, question: Question, run: Run) -> dict[str, Estimate]:
        if question.horizon is not None or not question.discount < 1.0:
            raise BadInput(
                "BestDICE values the whole future with a discount below 1; "
                f"got horizon={question.horizon}, discount={question.discount}. "
                "Leave horizon out, or use LSPE, FQE or ModelBased."
            )
        began = time.monotonic()
        dataset, starts = question.dataset, question.starts
        _, generator = generators(question.seed)
        targets = {name: target.actions.first(self.num_samples) for name, target in question.targets.items()}
        encoder, coming = self._encoder(dataset, list(targets.values()), generator, run)
        z = _encode_dataset(encoder, coming, dataset, run.torch_device)
        start_z = encode_rows(encoder, coming, starts.observations, run.torch_device)
        encoded = time.monotonic() - began
        estimates = {}
        for number, (name, target) in enumerate(question.targets.items()):
            first = target.start_actions.first(self.num_samples)
            states = (z, start_z)
            if coming is not None:
                own = torch.from_numpy(columns_of(number, len(targets), dataset.action_dim))
                centre, projection = principal(z[:, own])
                states = ((z[:, own] - centre) @ projection, (start_z[:, own] - centre) @ projection)
            data = self._data(dataset, *states, targets[name], first)
            plain = self._one(question, targets[name], data, run.within(target.digest))
            timings = {"encoder": encoded, **plain.timings}
            estimates[name] = replace(plain, timings=timings)
        return estimates

    def _encoder(
        self, dataset: Dataset, targets: list[TargetActions], generator: torch.Generator, run: Run
    ) -> tuple[Encoder, nn.Module | None]:
        """The encoder, and for pixels the head whose predictions are the state."""
        encoder = new_encoder(dataset, self.reads, self.feature_dim, generator).to(run.torch_device)
        if not encoder.has_pixels:
            return encoder, None
        learner = EncoderLearner(
            dataset,
            targets,
            encoder,
            steps=self.encoder_steps,
            lr=1e-3,
            batch_size=128,
            generator=generator,
            device=run.torch_device,
        )
        for _ in train(learner, steps=self.encoder_steps, run=run.within("encoder"), stage="dice encoder"):
            pass
        return encoder, learner.nets["coming"]

    def _data(
        self, dataset: Dataset, z: Tensor, start_z: Tensor, target: TargetActions, first: TargetActions
    ) -> DiceData:
        """Tensors of one policy, with z, actions and rewards standardised."""
        device, centre, spread = z.device, z.mean(dim=0), z.std(dim=0)
        spread = torch.where(spread > 1e-6, spread, torch.ones_like(spread))
        logged = dataset.action_matrix(dataset.actions)
        shift, scale = np.zeros(logged.shape[1], np.float32), np.ones(logged.shape[1], np.float32)
        if not dataset.discrete:
            shift, scale = logged.mean(axis=0), np.where(logged.std(axis=0) > 1e-8, logged.std(axis=0), 1.0)

        def actions(matrix: FloatArray) -> Tensor:
            return torch.from_numpy(((matrix - shift) / scale).astype(np.float32)).to(device)

        deviation = float(dataset.rewards.std())
        middle = 0.0 if dataset.terminated.any() else float(dataset.rewards.mean())
        rewards = (dataset.rewards - middle) / (deviation if deviation > 1e-12 else 1.0)
        deterministic = target.actions.shape[1] == 1 and not dataset.discrete
        return DiceData(
            z=(z - centre) / spread,
            rows=torch.from_numpy(dataset.rows).to(device),
            actions=actions(logged),  # type: ignore[arg-type]
            rewards=torch.from_numpy(rewards.astype(np.float32)).to(device),
            terminated=torch.from_numpy(np.array(dataset.terminated)).to(device),
            chosen=actions(target.actions),  # type: ignore[arg-type]
            weights=torch.from_numpy(target.weights.astype(np.float32)).to(device),
            start_z=(start_z - centre) / spread,
            start_chosen=actions(first.actions),  # type: ignore[arg-type]
            start_weights=torch.from_numpy(first.weights.astype(np.float32)).to(device),
            exact=dataset.discrete,
            noise=self.smoothing if deterministic else 0.0,
        )

    def _one(self, question: Question, target: TargetActions, data: DiceData, run: Run) -> Estimate:
        dataset, starts, discount, seed = (
            question.dataset,
            question.starts,
            question.discount,
            question.seed,
        )
        began, (_, generator) = time.monotonic(), generators(seed)
        shared = {f.name: getattr(self, f.name) for f in fields(DiceRule) if f.name != "discount"}
        learner = DiceLearner(data, DiceRule(discount=discount, **shared), generator)
        history = list(train(learner, steps=self.steps, run=run, stage="dice"))
        given = None if self.solve_last else ratios(learner)
        solved = solve_last_layers(learner, given, keep_flow=self.keep_flow)
        zeta, zeta_end = solved.zeta, solved.zeta_end
        mean = float(zeta.mean()) + learner.end_weight * zeta_end
        value = read_out(dataset.rewards, zeta, learner.end_weight * zeta_end, discount)
        influence = _influence(dataset, starts, solved, mean, discount)
        error, interval, per_unit = unit_interval(dataset, value, influence, question.level)
        residual = flow_residual(learner, zeta, zeta_end, discount)
        checks, stats = dice_checks(zeta, mean, residual, data.noise), dict[str, float]()
        if len(dataset) > 20:
            states = states_of(dataset, data.z.cpu().numpy())
            stats["action_support"] = action_support(states, dataset, target, zeta, seed=seed)
            checks = (*checks, action_support_check(stats["action_support"]))
        broken = not np.isfinite(value) or abs(mean - 1.0) > 0.5
        return Estimate(
            value=value,
            method=repr(self),
            discount=discount,
            interval=interval,
            standard_error=error,
            influence=per_unit,
            status=Status.DIVERGED if broken else Status.CONVERGED,
            checks=checks,
            curves={
                name: [metrics[name] for metrics in history]
                for name in ("lagrangian", "mean_zeta", "weighted_reward")
            },
            stats={
                "mean_zeta": mean,
                "max_zeta": float(zeta.max()),
                "flow_residual": residual,
                "repair": solved.repair,
                **stats,
            },
            timings={"training": time.monotonic() - began},
        )


def ratios(learner: DiceLearner) -> tuple[FloatArray, float]:
    """zeta of every transition, shape (N,), and of the absorbing state, by the averaged weights."""
    data, parts = learner.data, []
    with torch.no_grad():
        for first in range(0, len(data.rows), 65536):
            part = slice(first, first + 65536)
            parts.append(learner.averaged.zeta(data.z[data.rows[part]], data.actions[part]).cpu().numpy())
        return np.concatenate(parts).astype(np.float64), float(learner.averaged.zeta_at_end())


def read_out(rewards: FloatArray, zeta: FloatArray, end_mass: float, discount: float) -> float:
    """sum zeta r / sum zeta / (1 - g).

    Args:
        rewards: shape (N,).
        zeta: shape (N,).
        end_mass: weight times zeta of the absorbing state, in units of the N transitions' mean; it earns 0.
        discount: g.
    """
    total = zeta.sum() + len(zeta) * end_mass
    if not np.isfinite(total) or total <= 0.0:
        return float("nan")
    return float(zeta @ rewards / total) / (1.0 - discount)


def _influence(
    dataset: Dataset, starts: Starts, solved: Solution, mean: float, discount: float
) -> FloatArray:
    """Influence of each episode on the value: zeta times the TD errors of Q, and the luck of its start state.

    With zeta held fixed the error of zeta itself would be missing, which is most of it: zeta r varies far less than zeta td.
    """
    unit = float(dataset.rewards.std())
    unit = unit if unit > 1e-12 else 1.0
    per_step = unit * solved.zeta * solved.td / (len(dataset) * mean * (1.0 - discount))
    influence = np.zeros(dataset.num_episodes)
    np.add.at(influence, dataset.episode_of, per_step)
    if starts.unit is not None and len(solved.start) == dataset.num_episodes:
        influence += unit * solved.start / len(solved.start)
    return np.asarray(influence - influence.mean(), dtype=np.float64)


def _encode_dataset(
    encoder: Encoder, coming: nn.Module | None, dataset: Dataset, device: torch.device, chunk: int = 4096
) -> Tensor:
    """The state of every observation row; pixels are read a chunk at a time."""
    rows = len(dataset) + dataset.num_episodes
    return torch.cat(
        [
            encode_rows(encoder, coming, dataset.observe(np.arange(first, min(first + chunk, rows))), device)
            for first in range(0, rows, chunk)
        ]
    )
