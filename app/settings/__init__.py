"""The settings: one declaration, the file that keeps them, and the dialog built from the declaration."""
