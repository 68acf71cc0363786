"""Our exceptions, each with the errno that a filesystem shows for it, and the one map from any exception.

An errno never tells the story: the message is a whole sentence that says what to do, and the doors hand it
back where the caller can read it.
"""

import errno
import socket
import ssl
from typing import ClassVar


class OllieError(Exception):
    """Something a user can be told; ``str()`` is the sentence."""

    errno: ClassVar[int] = errno.EIO


class Invalid(OllieError):
    """A command, spec or value that does not parse or is out of range."""

    errno = errno.EINVAL


class NotFound(OllieError):
    """No such thing, or no longer."""

    errno = errno.ENOENT


class Exists(OllieError):
    """The name is taken."""

    errno = errno.EEXIST


class Busy(OllieError):
    """Somebody holds it, or not while a turn runs."""

    errno = errno.EBUSY


class Denied(OllieError):
    """A policy or a file's mode said no."""

    errno = errno.EACCES


class NotPermitted(OllieError):
    """This principal may not, or this tree does not allow it at all."""

    errno = errno.EPERM


class TooLarge(OllieError):
    """More than the limit that the message names."""

    errno = errno.EFBIG


class Stale(OllieError):
    """It changed, or went, since the caller looked."""

    errno = errno.ESTALE


class Stopped(OllieError):
    """Somebody stopped, dropped or held it."""

    errno = errno.ECANCELED


class Interrupted(OllieError):
    """A wait that was ended for its reader's sake; asking again goes on waiting."""

    errno = errno.EINTR


class WouldBlock(OllieError):
    """There is nothing yet, and the caller does not want to wait."""

    errno = errno.EAGAIN


class TimedOut(OllieError):
    """It did not answer in time."""

    errno = errno.ETIMEDOUT


class RemoteFailed(OllieError):
    """A provider or a remote host failed."""

    errno = errno.EREMOTEIO


_NOT_ERRNO = (socket.gaierror, socket.herror, ssl.SSLError)
"""OSErrors whose number is another numbering's."""


def errno_of(exc: BaseException) -> int:
    """Return the errno for *exc*: ours by its class, the system's as it is, anything else EIO."""
    if isinstance(exc, OllieError):
        return type(exc).errno
    if isinstance(exc, OSError) and not isinstance(exc, _NOT_ERRNO) and exc.errno in errno.errorcode:
        return int(exc.errno or errno.EIO)
    return errno.EIO


def is_unexpected(exc: BaseException) -> bool:
    """Whether *exc* is a bug of ours, or a disk that failed, and so belongs in the log with its traceback."""
    return not isinstance(exc, OllieError) and errno_of(exc) == errno.EIO


def sentence_of(exc: BaseException) -> str:
    """Return what to tell a user about *exc*; the details of a bug are the log's."""
    if isinstance(exc, OllieError):
        return str(exc)
    if isinstance(exc, OSError) and exc.strerror:
        return f"{exc.filename}: {exc.strerror}" if exc.filename else exc.strerror
    return f"internal error ({type(exc).__name__}); the daemon's log has the details"
