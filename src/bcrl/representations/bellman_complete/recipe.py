"""BellmanComplete: settings and presets; fitting.py puts the parts together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bcrl.data.dataset import Dataset
from bcrl.networks import STRIDES, Activation, sees_pixels
from bcrl.policies.policy import TargetActions
from bcrl.representations.bellman_complete.fitting import train_features
from bcrl.representations.bellman_complete.objective import Design, Metric
from bcrl.representations.bellman_complete.steady import steadier
from bcrl.representations.fitted import FeatureNorm, FittedFeatures
from bcrl.training import Precision, Run


@dataclass(frozen=True)
class BellmanComplete:
    """Features that are linear Bellman complete for the policies to be evaluated, and well covered by the data.

    The default is the recipe that measured best on worlds with exact values (docs of the objective: objective.py);
    `paper()` and `released()` are what the paper's table and the authors' code say.

    Attributes:
        dim: number of features, the constant one included; None: 64 on vectors, 32 on pixels. Fewer where the data have under 8
            transitions per feature.
        lr: Adam's learning rate for phi.
        batch_size: transitions per step; None: 2048 on vectors, 1024 on pixels. Far above `dim`, or M is mostly noise.
        steps: number of steps; None counts `epochs`. Both None: 600 steps on vectors, 200 on pixels.
        epochs: passes over the data (of M and of phi where they take turns).
        schedule: "cosine" warms up over a twentieth of the steps and falls to zero as the square of a half cosine, so that
            little moves in the last third.
        average_tau: rate of a running mean of phi's weights, which is what is kept; None keeps the last weights.
        metric: how the completeness residual is measured: relative to the features ("whitened"), or as in the paper ("plain").
        completeness_weight: weight of the completeness loss; 0 leaves it out; None: 0.003 on vectors, 0.03 on pixels. Beside the
            value term it grows with the horizon.
        reward_weight: weight of the reward residual, relative to the reward's variance under the whitened metric.
        value_weight: weight of the residuals along LSPE's own iterates; 0 leaves them out, as the paper does.
        ridge: of the closed-form M and of the whitening, in units of the mean eigenvalue of sigma.
        design: coverage term: "D" log det, "E" smallest eigenvalue.
        design_weight: its weight, lambda.
        design_constraint: beta; in place of a weight, R_E >= beta/2 (D: mean log eigenvalue >= log beta/2), with a
            learned multiplier.
        multiplier_lr: step of that multiplier.
        jitter: added to sigma inside log det.
        inner: M and rho in closed form on the batch, or by gradient steps of their own (Algorithm 3).
        inner_lr: learning rate of those steps.
        alternate: "step" moves M and phi in every step; "epoch" by turns, a whole epoch each, as the released code does.
        moments: take the loss at the batch's moments, or at a running mean of them, for batches not much larger than `dim`.
        decay: of the running mean.
        target_tau: rate of a target network for phi'; None has none and lets the gradient through both sides.
        spectral_bound: bound on ||M||_2, by clipping singular values.
        reward_bound: bound on ||rho||.
        double_sampling: subtract the noise of random transitions with a learned class G (correction.py).
        g_steps: steps of g before each step of phi.
        g_lr: learning rate of g.
        constant_feature: one feature is always 1.
        feature_norm: "sphere" or "ball" bounds ||phi|| by 1, the constant left out.
        grad_clip: largest norm of phi's gradient.
        hidden: width of the head.
        head_layers: linear layers of the head.
        activation: of the head.
        activate_last: also on its output.
        layer_norm: normalise the head's hidden layers, which tames features far from the data and costs accuracy elsewhere.
        steady: on vectors, where the value moved by more than this share over the last half of training, train again with layer
            norm and two thirds of the length, and keep the steadier (steady.py); None never does. Looked at is the mean value
            over the policies, for ever on, whatever the horizon.
        reads: observation key(s) to look at; None = pixels where there are any, else every vector.
        feature_dim: numbers per pixel observation.
        conv_layers: convolutions of the paper's encoder, the first with stride 2 (the paper has 5); set, it overrides `strides`.
        channels: of every convolution.
        strides: one stride per convolution; the default costs a quarter of the paper's encoder.
        shift: pixels by which images move at random while training (DrQ's augmentation has 4 of 84). It helps where the camera
            follows, and hides the state where that is a place in the picture.
        run_length: consecutive transitions that enter a batch together; None = 1 on vectors, 16 on pixels.
        chunk: transitions encoded at once; larger batches are encoded twice (gradient caching). None = all.
        held_out: share of the units kept from training, for the figures that choose and stop.
        evaluations: how often those figures are taken.
        keep: features of the "last" step, or of the "best" held-out completeness.
        patience: stop when that many evaluations brought no better completeness and the value stood still; None never stops.
        precision: "auto" takes bfloat16 where the hardware has it, on GPUs; else float32.
        compile: torch.compile the networks, where a compiler is found.
    """

    dim: int | None = None
    lr: float = 2e-3
    batch_size: int | None = None
    steps: int | None = None
    epochs: int | None = None
    schedule: Literal["cosine", "constant"] = "cosine"
    average_tau: float | None = 0.02
    metric: Metric = "whitened"
    completeness_weight: float | None = None
    reward_weight: float = 1.0
    value_weight: float = 1.0
    ridge: float = 1e-5
    design: Design = "none"
    design_weight: float = 0.0
    design_constraint: float | None = None
    multiplier_lr: float = 0.01
    jitter: float = 1e-8
    inner: Literal["closed", "gradient"] = "closed"
    inner_lr: float = 1e-3
    alternate: Literal["step", "epoch"] = "step"
    moments: Literal["batch", "running"] = "batch"
    decay: float = 0.9
    target_tau: float | None = None
    spectral_bound: float | None = None
    reward_bound: float | None = None
    double_sampling: bool = False
    g_steps: int = 3
    g_lr: float = 1e-3
    constant_feature: bool = True
    feature_norm: FeatureNorm = "none"
    grad_clip: float | None = None
    hidden: int = 256
    head_layers: int = 3
    activation: Activation = "gelu"
    activate_last: bool = False
    layer_norm: bool = False
    steady: float | None = 0.1
    reads: str | tuple[str, ...] | None = None
    feature_dim: int = 50
    conv_layers: int | None = None
    channels: int = 32
    strides: tuple[int, ...] = STRIDES
    shift: int = 0
    run_length: int | None = None
    chunk: int | None = None
    held_out: float = 0.1
    evaluations: int = 20
    keep: Literal["last", "best"] = "last"
    patience: int | None = None
    precision: Precision = "auto"
    compile: bool = False

    @classmethod
    def paper(cls) -> "BellmanComplete":
        """The paper's table: 512 features, Adam 1e-5, batches of 2048, 200 epochs, target network 0.005, lambda 5e-6."""
        return cls(
            dim=512,
            lr=1e-5,
            inner_lr=1e-5,
            batch_size=2048,
            epochs=200,
            target_tau=0.005,
            design="D",
            design_weight=5e-6,
            head_layers=4,
            hidden=512,
            conv_layers=5,
            chunk=256,
            **_AS_PUBLISHED,  # type: ignore[arg-type]
        )

    @classmethod
    def released(cls, *, epochs: int = 10_000, mixture: bool = False) -> "BellmanComplete":
        """The authors' released settings; on data with the target policy's own episodes (`mixture`) they drop the design term."""
        return cls(
            dim=512,
            lr=3e-4,
            inner_lr=3e-4,
            batch_size=4096,
            epochs=epochs,
            alternate="epoch",
            design="none" if mixture else "D",
            design_weight=0.0 if mixture else 1e-6,
            grad_clip=1.0,
            head_layers=2,
            hidden=512,
            conv_layers=4,
            chunk=256,
            **_AS_PUBLISHED,  # type: ignore[arg-type]
        )

    def fit(
        self, dataset: Dataset, targets: Sequence[TargetActions], *, discount: float, seed: int, run: Run
    ) -> FittedFeatures:
        """Learn phi on a dataset, one phi for all these target policies.

        Args:
            dataset: logged transitions; some units are held out for figures.
            targets: the policies' actions at every observation row of the dataset.
            discount: of the values to be estimated.
            seed: of weights, batches and the held-out split.
            run: device, checkpoints, progress.
        """
        pixels = sees_pixels(dataset, self.reads)
        by_kind = dict(_PIXELS if pixels else _VECTORS)
        if self.epochs is not None:
            del by_kind["steps"]
        missing = {name: value for name, value in by_kind.items() if getattr(self, name) is None}
        chosen: BellmanComplete = replace(self, **missing)  # type: ignore[arg-type]
        first = train_features(chosen, dataset, targets, discount=discount, seed=seed, run=run)
        if self.steady is None or self.layer_norm or pixels:
            return first
        steps, epochs = _two_thirds(chosen.steps), _two_thirds(chosen.epochs)
        calm = replace(chosen, layer_norm=True, steps=steps, epochs=epochs)
        room = run.within("again").titled("again, with layer norm")
        return steadier(
            first,
            lambda: train_features(calm, dataset, targets, discount=discount, seed=seed, run=room),
            self.steady,
        )


def _two_thirds(count: int | None) -> int | None:
    return None if count is None else max(1, 2 * count // 3)


# What is left to the kind of data.
_VECTORS: dict[str, object] = {
    "steps": 600,
    "dim": 64,
    "batch_size": 2048,
    "completeness_weight": 0.003,
    "run_length": 1,
}
_PIXELS: dict[str, object] = {
    "steps": 200,
    "dim": 32,
    "batch_size": 1024,
    "completeness_weight": 0.03,
    "run_length": 16,
}
# What the paper and its code share, against our default.
_AS_PUBLISHED: dict[str, object] = {
    "metric": "plain",
    "completeness_weight": 1.0,
    "value_weight": 0.0,
    "ridge": 0.0,
    "inner": "gradient",
    "schedule": "constant",
    "average_tau": None,
    "steady": None,
    "constant_feature": False,
    "activation": "relu",
    "activate_last": True,
}
