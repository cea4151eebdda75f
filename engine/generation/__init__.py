"""From a request to a finished picture: prompt, latents, denoising, previews."""
