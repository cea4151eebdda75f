"""Picture files: their names, their metadata, writing them whole."""
