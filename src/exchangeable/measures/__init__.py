"""Measures: how strange is the newest example among all so far?"""

from exchangeable.measures.nearest import NearestNeighbour

__all__ = ["NearestNeighbour"]
