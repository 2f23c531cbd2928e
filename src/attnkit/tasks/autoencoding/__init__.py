"""Auto-encoders of lines and of vectors."""
