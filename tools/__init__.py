"""The commands of `make`, and of parts of the README."""
