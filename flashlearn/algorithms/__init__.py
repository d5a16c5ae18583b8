"""The ladder: every algorithm of the course in PyTorch, each a generator of steps and the function that runs it."""
