"""What the engine raises. Each message is a sentence for a person: what happened, to which file, what to do."""


class SafelightError(Exception):
    """Base of every error whose message can be shown as it is."""


class OperationCancelled(SafelightError):
    """The token of the call was cancelled. Never caught by a fallback."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "Cancelled.")


class HostClosed(SafelightError):
    """A host, plan or engine was used after `close`."""


class RequestRefused(SafelightError):
    """A request that this model can't carry out, found before any work."""


class ModelRefused(SafelightError):
    """A model folder or file that isn't one, is damaged, or could execute code. Nothing of it was loaded."""


class PlanFailed(SafelightError):
    """A plan could not be built, or broke while it ran; the eager module can still answer."""


class BackendUnavailable(SafelightError):
    """The backend that the request names can't run here."""


class NonFiniteLatents(SafelightError):
    """The noise predictor or the VAE produced NaN or infinity."""


class OutOfMemory(SafelightError):
    """Not enough memory, also after caches were dropped and the VAE was tiled and sliced."""


class PictureNotSaved(SafelightError):
    """The picture is made, but its file could not be written. The picture is still in memory."""


class PictureUnreadable(SafelightError):
    """A picture file that isn't one, is too large to open safely, or holds no settings."""
