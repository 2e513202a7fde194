"""Is the data fit, and do the policies fit it?
`doctor.examine(dataset, policies)` says so before any training."""

from bcrl.doctor.examine import examine
from bcrl.doctor.findings import Finding

__all__ = ["Finding", "examine"]
