"""Measurements that were recorded, one JSON file a run, and what reads them."""

from flashlearn.measurements.records import chosen, geometric_mean, load, provenance, ratios, recordings

__all__ = ["chosen", "geometric_mean", "load", "provenance", "ratios", "recordings"]
