"""Grading of notebooks that were handed in: `python -m flashlearn.exercises`."""
