"""Between pictures and latents."""
