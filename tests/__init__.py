import flashlearn  # noqa: F401  before any test imports Triton: see flashlearn.core.interpreter
