"""Policies of known strength: state actors trained here, pixel actors distilled from them, and how they are
made.
"""
