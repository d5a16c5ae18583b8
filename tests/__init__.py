import flashlearn  # noqa: F401  before any test imports Triton: see flashlearn.core.interpreter
from flashlearn.show import reduced_motion

reduced_motion(False)  # `make test` asks for stills, and means the notebooks
