"""BellmanComplete: settings and presets; fitting.py puts the parts together."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bcrl.data.dataset import Dataset
from bcrl.estimate import short_call
from bcrl.networks import HEAD, PIXELS, Head, Pixels, sees_pixels
from bcrl.options import Checked, Count, Fraction, NotNegative, Positive, Rate, Width
from bcrl.policies.policy import TargetActions
from bcrl.representations.bellman_complete.fitting import fit_steadily, train_features
from bcrl.representations.bellman_complete.objective import DesignKind, Metric
from bcrl.representations.features import FittedFeatures
from bcrl.training import Run


@dataclass(frozen=True)
class Design(Checked):
    """The coverage term R(phi).

    Attributes:
        kind: "D" log det of sigma, "E" its smallest eigenvalue.
        weight: lambda.
        constraint: beta; in place of a weight, R_E >= beta/2 (D: mean log eigenvalue >= log beta/2).
        multiplier_lr: step of that constraint's multiplier, which is learned.
        jitter: added to sigma inside log det.
    """

    kind: DesignKind = "D"
    weight: NotNegative = 0.0
    constraint: Positive | None = None
    multiplier_lr: Positive = 0.01
    jitter: NotNegative = 1e-8

    __repr__ = short_call


@dataclass(frozen=True)
class GradientSteps(Checked):
    """M and rho by gradient steps of their own, as in Algorithm 3.

    Attributes:
        lr: of their Adam.
        alternate: "step" moves M and phi in every step; "epoch" by turns, as the released code does.
        target_tau: rate of a target network for phi'; None has none and lets the gradient through both sides.
    """

    lr: Positive = 1e-3
    alternate: Literal["step", "epoch"] = "step"
    target_tau: Rate | None = None

    __repr__ = short_call


@dataclass(frozen=True)
class Bounds(Checked):
    """The paper's Theta.

    Attributes:
        m: largest ||M||_2; None leaves it free. The minimum over Theta itself is found (theta.py).
        rho: largest ||rho||; None leaves it free.
    """

    m: Positive | None = None
    rho: Positive | None = None

    __repr__ = short_call


@dataclass(frozen=True)
class DoubleSampling(Checked):
    """The class G that takes the noise of random transitions out of the loss (correction.py).

    Attributes:
        steps: of g before each step of phi.
        lr: of g.
    """

    steps: Count = 3
    lr: NotNegative = 1e-3

    __repr__ = short_call


@dataclass(frozen=True)
class Stopping(Checked):
    """Which features are kept, and when training ends, by held-out figures.

    Attributes:
        keep: features of the "last" step, or of the "best" held-out completeness.
        patience: evaluations without progress and with a steady value before it ends; None never stops.
    """

    keep: Literal["last", "best"] = "last"
    patience: Count | None = None

    __repr__ = short_call


_UNBOUNDED, _TO_THE_END = Bounds(), Stopping()
Ablation = Literal["nothing", "design", "completeness"]


@dataclass(frozen=True)
class BellmanComplete(Checked):
    """Features that are linear Bellman complete for the policies to be evaluated, and covered by the data.

    The default is the recipe that measured best on worlds with exact values; `paper()` and `released()` are
    what the paper's table and the authors' code say. The loss is in objective.py.

    Attributes:
        dim: number of features; None: 64 on vectors, 32 on pixels. At most an eighth of the transitions.
        lr: Adam's learning rate for phi.
        batch_size: transitions per step, far above `dim`; None: 2048 on vectors, 1024 on pixels.
        steps: number of steps; None counts `epochs`. Both None: 600 steps on vectors, 200 on pixels.
        epochs: passes over the data (of M and of phi where they take turns).
        schedule: "cosine" warms up for a twentieth of the steps and falls to zero as a squared half cosine.
        average_tau: rate of a running mean of phi's weights, which is kept; None keeps the last weights.
        grad_clip: largest norm of phi's gradient.
        chunk: transitions encoded at once; larger batches are encoded twice (gradient caching). None = all.
        metric: the completeness residual relative to the features ("whitened"), or as in the paper ("plain").
        completeness_weight: None: 0.003 on vectors, 0.03 on pixels. It grows with the horizon.
        reward_weight: of the reward residual, relative to the reward's variance if the metric is whitened.
        value_weight: of the residuals along LSPE's own iterates; 0 leaves them out, as the paper does.
        ridge: of the closed-form M and of the whitening, in units of the mean eigenvalue of sigma.
        design: the coverage term; None has none.
        inner: how M and rho are found; None: in closed form on the batch.
        bounds: on M and rho.
        double_sampling: correction for random transitions; None has none.
        running_moments: decay of a running mean of moments, for batches not much larger than `dim`; or None.
        head: the MLP on (z, action).
        constant_feature: one feature is always 1.
        reads: observation key(s) to look at; None = pixels where there are any, else every vector.
        pixels: the pixel encoder. Its `shift` hides a state that is a position in the picture.
        steady: on vectors, where the value moved by more than this share over the last half of training,
            train again with layer norm for two thirds of the steps and keep the steadier one; None never.
        held_out: share of the units kept from training, for the figures that choose and stop.
        evaluations: how often those figures are taken.
        stopping: what those figures decide.
        published: as the paper trains: on all of the data, batches of independent rows, `dim` features
            whatever the data, and in LSPE one training; figures are then of rows that were trained on.
    """

    dim: Width | None = None
    lr: NotNegative = 2e-3
    batch_size: Count | None = None
    steps: Count | None = None
    epochs: Count | None = None
    schedule: Literal["cosine", "constant"] = "cosine"
    average_tau: Rate | None = 0.02
    grad_clip: Positive | None = None
    chunk: Count | None = None
    metric: Metric = "whitened"
    completeness_weight: NotNegative | None = None
    reward_weight: NotNegative = 1.0
    value_weight: NotNegative = 1.0
    ridge: NotNegative = 1e-5
    design: Design | None = None
    inner: GradientSteps | None = None
    bounds: Bounds = _UNBOUNDED
    double_sampling: DoubleSampling | None = None
    running_moments: Fraction | None = None
    head: Head = HEAD
    constant_feature: bool = True
    reads: str | tuple[str, ...] | None = None
    pixels: Pixels = PIXELS
    steady: NotNegative | None = 0.1
    held_out: Fraction = 0.1
    evaluations: Count = 20
    stopping: Stopping = _TO_THE_END
    published: bool = False

    __repr__ = short_call

    @classmethod
    def paper(cls, *, without: Ablation = "nothing") -> "BellmanComplete":
        """The paper's table: 512 features, Adam 1e-5, batches of 2048, target network 0.005, lambda 5e-6.

        Args:
            without: the paper's ablations of Algorithm 3: the design term (also left out on data with the
                target's own episodes), or all but the design term.
        """
        whole = replace(
            _AS_PUBLISHED,
            lr=1e-5,
            batch_size=2048,
            epochs=200,
            inner=GradientSteps(1e-5, target_tau=0.005),
            design=Design("D", 5e-6),
            head=Head(512, 4, "relu", activate_last=True),
            pixels=Pixels(conv_layers=5),
        )
        if without == "completeness":
            return replace(whole, completeness_weight=0.0, reward_weight=0.0)
        return replace(whole, design=None) if without == "design" else whole

    @classmethod
    def released(cls, *, epochs: int = 10_000, mixture: bool = False) -> "BellmanComplete":
        """The authors' released settings; `mixture` (data with target episodes) has no design term."""
        return replace(
            _AS_PUBLISHED,
            lr=3e-4,
            batch_size=4096,
            epochs=epochs,
            grad_clip=1.0,
            inner=GradientSteps(3e-4, alternate="epoch"),
            design=None if mixture else Design("D", 1e-6),
            head=Head(512, 2, "relu", activate_last=True),
            pixels=Pixels(conv_layers=4),
        )

    def fit(
        self, dataset: Dataset, targets: Sequence[TargetActions], *, discount: float, seed: int, run: Run
    ) -> FittedFeatures:
        """Learn phi on a dataset, one phi for all these target policies.

        Of more than three policies each step looks at three, drawn afresh.

        Args:
            dataset: logged transitions; some units are held out for figures.
            targets: the policies' actions at every observation row of the dataset.
            discount: of the values to be estimated.
            seed: of weights, batches and the held-out split.
            run: device, checkpoints, progress.
        """
        pixels = sees_pixels(dataset, self.reads)
        recipe = self.completed(pixels=pixels)
        if pixels:
            recipe = replace(recipe, steady=None)

        def training(recipe: "BellmanComplete", run: Run) -> FittedFeatures:
            return train_features(recipe, dataset, targets, discount=discount, seed=seed, run=run)

        return fit_steadily(recipe, run, training)

    def completed(self, *, pixels: bool) -> "BellmanComplete":
        """The same recipe with every None that depends on the kind of data filled in."""
        defaults = _ON_PIXELS if pixels else _ON_VECTORS
        left_open = ["dim", "batch_size", "completeness_weight", *(["steps"] if self.epochs is None else [])]
        recipe = copy.copy(self)  # not `replace`, which would check the options again
        vars(recipe).update(
            {name: getattr(defaults, name) for name in left_open if getattr(self, name) is None}
        )
        return recipe


_ON_VECTORS = BellmanComplete(steps=600, dim=64, batch_size=2048, completeness_weight=0.003)
_ON_PIXELS = BellmanComplete(steps=200, dim=32, batch_size=1024, completeness_weight=0.03)
# What the paper and its code share, against our default.
_AS_PUBLISHED = BellmanComplete(
    dim=512,
    schedule="constant",
    average_tau=None,
    chunk=256,
    metric="plain",
    completeness_weight=1.0,
    value_weight=0.0,
    ridge=0.0,
    constant_feature=False,
    steady=None,
    published=True,
)
