"""`generate` of transformers imports torch's compiler, and that import warns of a function of torch's own."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch._inductor.cudagraph_trees  # noqa: F401
