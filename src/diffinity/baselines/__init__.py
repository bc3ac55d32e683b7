"""The baselines of the benchmark, all with the same interface (`base.System`)."""
