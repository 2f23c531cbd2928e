"""Where and how arithmetic happens: device, precision, threads, ranks; and what asks it to stop. Knows no task."""
