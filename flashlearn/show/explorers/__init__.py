"""Explorers: pictures with their sizes under control."""

from flashlearn.show.explorers.gpu import program_explorer, stride_explorer
from flashlearn.show.explorers.tiling import tiling_explorer

__all__ = ["program_explorer", "stride_explorer", "tiling_explorer"]
