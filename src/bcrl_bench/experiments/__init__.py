"""The paper's experiments on the benchmark world: a grid of cells, one JSON each, and the figures made from them."""
