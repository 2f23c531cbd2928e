"""One file, one subcommand: parse, call a task, render."""
