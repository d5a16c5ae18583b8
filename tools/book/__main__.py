"""Build the book; the exit status is Sphinx's, and a warning is an error."""

import sys

from tools.book.build import build

sys.exit(build())
