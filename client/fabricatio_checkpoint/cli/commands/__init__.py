"""One module a noun; each function runs one command and returns its exit code."""
