"""Grading of submitted notebooks, and questions in a terminal: `python -m flashlearn` lists the commands.

- notebook.py: reads a notebook, and finds by its name which exercises are expected in it.
- record.py: the record that `check` writes in a grading run. kernel.py: runs the cells in a Jupyter kernel, for that
  record.
- strict.py: grades submitted functions, which are called in a separate process (worker.py).
- messages.py: sends values to that process and back. landlock.py: restricts its rights.
- stripped.py: the package in that process, a copy without answers. stand_ins.py: what replaces its functions.
- sandbox.py: starts such processes. supervisor.py: ends them and all that they started.
- asking.py: asks questions in a terminal. review.py: asks again, on a schedule.
- inventory.py: questions before and after the course, in two forms.
- export.py: all questions for Moodle and Canvas, all exercises as a table.
"""
