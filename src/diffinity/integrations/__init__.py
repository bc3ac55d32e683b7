"""Structured output inside other people's loops: `integrations.transformers` and `integrations.diffusers`."""
