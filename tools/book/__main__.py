"""Build the book, or the chapters whose numbers are given; the exit status is Sphinx's, and a warning is an error."""

import gc
import sys

from tools.book.build import build

gc.freeze()  # what was imported stays, so that no collection need look at it again
gc.set_threshold(50_000, 20, 20)  # steps and pages are many small objects: collecting as often as ever takes a tenth
sys.exit(build(sys.argv[1:]))
