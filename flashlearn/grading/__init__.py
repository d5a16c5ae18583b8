"""Grading of notebooks that were handed in, by `python -m flashlearn.grading`.

notebook.py   reads a notebook, and tells by its name which exercises are expected in it
record.py     what `check` leaves in a grading run
kernel.py     runs the cells in a Jupyter kernel, for that record
strict.py     grades the functions that the cells hand in, which are called in a process of their own
stripped.py   the package that they find there: a copy without answers;  stand_ins.py   what stands in for its functions
landlock.py   keeps that process from everything else
worker.py     that process;  messages.py   how values get there and back
sandbox.py       starts such processes;  supervisor.py   ends them, with all that they started
"""
