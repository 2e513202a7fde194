"""What the caller may say about a policy, in one place; an option that would do nothing is refused."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from bcrl.errors import BadInput
from bcrl.policies.files import PolicyFile
from bcrl.policies.kinds import Output
from bcrl.policies.normaliser import Normaliser
from bcrl.policies.policy import Reads

Layout = Literal["nhwc", "nchw"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Options:
    """The keyword arguments of `load_policy`, checked; its docstring explains them."""

    reads: Reads = None
    stats: Normaliser | None = None
    num_actions: int | None = None
    stochastic: bool = False
    noise: float = 0.0
    output: Output | None = None
    output_name: str | None = None
    layout: Layout | None = None
    batched: bool = True
    threads: int = 1

    def __post_init__(self) -> None:
        known = {"output": ("actions", "probabilities", "logits", "q_values"), "layout": ("nhwc", "nchw")}
        for name, values in known.items():
            if getattr(self, name) not in (None, *values):
                raise BadInput(f"{name}={getattr(self, name)!r}; expected one of {', '.join(values)}.")
        if not 0.0 <= self.noise < float("inf"):
            raise BadInput(f"noise={self.noise}; expected a standard deviation from 0, in the action's unit.")
        if self.noise > 0.0 and self.stochastic:
            raise BadInput("noise= adds noise to a deterministic action; with stochastic=True leave it out.")
        if self.threads < 1:
            raise BadInput(f"threads={self.threads}; expected a whole number from 1.")
        if self.num_actions is not None and self.num_actions < 1:
            raise BadInput(f"num_actions={self.num_actions}; expected a whole number from 1.")

    def only(self, what: str, *allowed: str) -> "Options":
        """These options, refused when one was given that does nothing for this kind of policy."""
        for field in fields(self):
            general = field.name in ("reads", "num_actions")
            if not general and field.name not in allowed and getattr(self, field.name) != field.default:
                raise BadInput(f"{field.name}= does nothing for {what}; leave it out.")
        return self

    def _changed(self) -> dict[str, Any]:
        """What shapes the policy, apart from defaults, as JSON can hold it; statistics by their digest."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        changed = {
            name: value
            for name, (value, default) in values.items()
            if value != default and name != "num_actions"
        }
        if self.stats is not None:
            changed["stats"] = self.stats.digest
        return changed

    def source(self, file: PolicyFile | None = None) -> dict[str, Any]:
        """Where a policy came from, as the kinds' fields."""
        found: dict[str, Any] = {"loaded_with": self._changed()}
        if file is not None:
            found |= {"path": file.path, "digest": file.digest}
        if self.stats is not None:
            found |= {"stats_path": self.stats.path, "stats_digest": self.stats.digest}
        return found
