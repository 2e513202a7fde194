"""Offline policy evaluation on Bellman complete representations."""
