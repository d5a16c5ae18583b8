"""Recorded measurements, one JSON file a run, and the code that reads them."""

from flashlearn.measurements.records import chosen, geometric_mean, load, provenance, ratios, recordings

__all__ = ["chosen", "geometric_mean", "load", "provenance", "ratios", "recordings"]
