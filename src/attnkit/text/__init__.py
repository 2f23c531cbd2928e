"""Strings to ids and back: lines, checks, vocabularies. Knows no torch."""
