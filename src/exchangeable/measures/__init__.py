"""Measures: they rank how strange the newest example is among all examples so far."""

from exchangeable.measures.conditional import Conditional
from exchangeable.measures.distance import NearestDistance, NearestResidual
from exchangeable.measures.frozen import Frozen
from exchangeable.measures.nearest import NearestNeighbour
from exchangeable.measures.value import Value

__all__ = ["Conditional", "Frozen", "NearestDistance", "NearestNeighbour", "NearestResidual", "Value"]
