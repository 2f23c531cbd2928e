"""Quality of parallel text: evidence of alignment, languages, damage and repair."""
