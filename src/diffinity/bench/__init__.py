"""The benchmark suite: the paper's experiments, with all its systems."""
