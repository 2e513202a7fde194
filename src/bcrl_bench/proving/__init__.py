"""The proving ground: many unlike worlds with known truth, on which estimates and verdicts are judged."""
