"""How a stage ends when it meets a fact about the science or the place: a status, not an error."""

from __future__ import annotations


class Outcome(Exception):  # noqa: N818 - a result of its own, not an error
    """A stage's end that is a result of its own: it is written into the status file and the exit code is 0.

    Attributes:
        state: ``unsupported``, ``failed`` or ``unavailable``.
        reason: short code, such as ``oom``.
        detail: one sentence for a person: what happened and what to do next.
    """

    def __init__(self, state: str, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.state, self.reason, self.detail = state, reason, detail


def unsupported(detail: str, reason: str = "device") -> Outcome:
    """Return the outcome of an optimisation that the device or the stack lacks (reason ``device`` or ``stack``)."""
    return Outcome("unsupported", reason, detail)


def out_of_memory(detail: str) -> Outcome:
    """Return the outcome of a stage that does not fit into memory."""
    return Outcome("failed", "oom", detail)


_OUT_OF_MEMORY_TEXTS = (
    "out of memory",  # CUDA runtime and PyTorch's caching allocator
    "can't allocate memory",  # PyTorch's CPU allocator
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether ``error`` is an allocation that failed, on the device or on the host.

    torch.cuda.OutOfMemoryError and the CPU allocator's error are both RuntimeErrors told apart by their text.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY_TEXTS)
