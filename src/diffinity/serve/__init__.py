"""An HTTP server with OpenAI's API for any model that `dy.load` takes, and its page (extra `serve`)."""
