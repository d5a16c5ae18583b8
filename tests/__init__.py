import flashlearn  # noqa: F401  before any test imports Triton: see flashlearn.core.interpreter

try:
    from flashlearn.show import reduced_motion
except ModuleNotFoundError:  # tests/gpu runs without the extra `notebooks`, too
    pass
else:
    reduced_motion(False)  # `make test` asks for stills, and means the notebooks
