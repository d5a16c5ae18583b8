"""What a notebook shows: pictures, animations, steppers, explorers, projector mode. Needs the extra `course`."""

from flashlearn.core.extras import needs

needs("flashlearn.show", "course", "IPython", "PIL", "ipywidgets", "matplotlib")
