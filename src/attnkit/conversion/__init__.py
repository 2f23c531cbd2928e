"""Import and export of whole runs."""
