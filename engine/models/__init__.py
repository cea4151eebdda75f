"""Model folders: what they are, and loading them."""
