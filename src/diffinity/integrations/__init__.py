"""Structured output in the loops of other libraries: `integrations.transformers` and `integrations.diffusers`."""
