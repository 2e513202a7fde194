"""Is the data fit for evaluation, and do the policies fit the data?
`doctor.examine(dataset, policies)` answers before any training."""

from bcrl.doctor.examine import examine, stop_at_errors
from bcrl.doctor.findings import Bearing, Finding

__all__ = ["Bearing", "Finding", "examine", "stop_at_errors"]
