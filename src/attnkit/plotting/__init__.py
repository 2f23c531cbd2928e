"""Pictures as strings: terminal and pages. Knows no models."""
