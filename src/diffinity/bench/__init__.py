"""The benchmark suite: the paper's experiments, with every system in them."""
