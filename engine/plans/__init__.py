"""One module ready to run: eagerly, or compiled by a backend."""
