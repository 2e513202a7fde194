"""Logged decisions. dataset.py draws the layout; build/, storage/ and sources/ are the ways in and out.

select.py chooses parts by unit, batches.py reads mini-batches, frames.py stacks pixels, starts.py says where
values begin.
"""
