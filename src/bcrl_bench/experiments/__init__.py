"""The paper's experiments on the benchmark world: a grid of cells, a line of JSON each, and the figures made
from them.
"""
