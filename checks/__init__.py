"""The built-in checks, one module a topic; they reach the machine through their host alone."""
