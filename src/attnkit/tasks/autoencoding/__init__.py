"""Auto-encoders for lines of text and for vectors."""
