"""The Python library: one class per kind of run, one function per command."""
