"""The HTTP door: an OpenAI-shaped server for any model that `dy.load` takes, and its page (extra `serve`)."""
