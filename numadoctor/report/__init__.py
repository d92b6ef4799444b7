"""One module a format. They know the model alone."""
