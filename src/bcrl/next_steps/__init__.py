"""What can be said and done where trust is missing: bounds, a guarded policy, an improved one, a trial."""
