"""Explorers: pictures with their sizes under control."""

from flashlearn.show.explorers.backward import backward_explorer
from flashlearn.show.explorers.gpu import program_explorer, stride_explorer
from flashlearn.show.explorers.tiling import tiling_explorer

__all__ = ["backward_explorer", "program_explorer", "stride_explorer", "tiling_explorer"]
