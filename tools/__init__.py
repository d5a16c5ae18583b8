"""What `make` runs, and what makes parts of the README."""
