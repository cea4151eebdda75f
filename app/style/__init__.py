"""How the window looks: colour tokens, the palette and style sheet made of them, icons, type."""
