"""Training: the corpus, the batches, the tasks and the loop."""
