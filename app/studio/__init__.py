"""The studio: a prompt, its numbers, the picture that comes of them. Models that need no window,
and views over them."""
