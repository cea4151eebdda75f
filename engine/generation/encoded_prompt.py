"""What text encoders make of prompts, and what of it goes into the noise predictor beside the latents."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class EncodedPrompt:
    """Prompt embeddings [B, tokens, width] and, for SDXL, the pooled text embeddings [B, P]."""

    embeddings: torch.Tensor
    pooled: torch.Tensor | None = None

    def zeros(self) -> EncodedPrompt:
        """Zeros in the same shapes."""
        pooled = None if self.pooled is None else torch.zeros_like(self.pooled)
        return EncodedPrompt(torch.zeros_like(self.embeddings), pooled)

    def followed_by(self, other: EncodedPrompt) -> EncodedPrompt:
        """Both, joined along the batch. Either both or none have pooled embeddings."""
        embeddings = torch.cat([self.embeddings, other.embeddings])
        if self.pooled is None or other.pooled is None:
            return EncodedPrompt(embeddings)
        return EncodedPrompt(embeddings, torch.cat([self.pooled, other.pooled]))

    def side_inputs(self, width: int, height: int) -> tuple[torch.Tensor, ...]:
        """The noise predictor's inputs after latents and timestep, for a picture of this size in pixels.

        SDXL's time ids [B, 6] say that the picture was trained on in this size, uncropped (Podell et al. 2023, 2.2).
        """
        if self.pooled is None:
            return (self.embeddings,)
        sizes = torch.tensor([[height, width, 0, 0, height, width]], dtype=self.pooled.dtype, device=self.pooled.device)
        return self.embeddings, self.pooled, sizes.repeat(len(self.pooled), 1)
