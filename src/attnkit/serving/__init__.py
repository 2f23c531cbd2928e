"""``attnkit serve``: trained runs behind one address (starlette and uvicorn)."""
