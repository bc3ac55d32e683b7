"""Training: the corpus, the data that it becomes, the tasks and the loop."""
