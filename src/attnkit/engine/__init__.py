"""How a run is trained, whatever its task."""
