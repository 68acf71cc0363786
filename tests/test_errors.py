"""Every exception has an errno that a filesystem can show, and a sentence."""

import errno
import importlib
import pkgutil
import socket
import ssl

import pytest
import trio

import ollie_fuse
from ollie_fuse import errors
from ollie_fuse.errors import OllieError, errno_of, is_unexpected, sentence_of

TABLE = {
    errors.OllieError: errno.EIO,
    errors.Invalid: errno.EINVAL,
    errors.NotFound: errno.ENOENT,
    errors.Exists: errno.EEXIST,
    errors.Busy: errno.EBUSY,
    errors.Denied: errno.EACCES,
    errors.NotPermitted: errno.EPERM,
    errors.TooLarge: errno.EFBIG,
    errors.Stopped: errno.ECANCELED,
    errors.Interrupted: errno.EINTR,
    errors.Stale: errno.ESTALE,
    errors.WouldBlock: errno.EAGAIN,
    errors.TimedOut: errno.ETIMEDOUT,
    errors.RemoteFailed: errno.EREMOTEIO,
}


def all_of(cls: type[OllieError]) -> list[type[OllieError]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in all_of(sub))]


@pytest.mark.parametrize(("cls", "number"), TABLE.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_ours_by_class(cls: type[OllieError], number: int) -> None:
    """Each of our exceptions has the errno of its meaning and is told by its own words."""
    exc = cls("do this instead")
    assert errno_of(exc) == number
    assert sentence_of(exc) == str(exc) == "do this instead"
    assert not is_unexpected(exc)


def test_the_table_is_whole() -> None:
    """Every exception of this module is in the table, and those of others are of one of its kinds."""
    for module in pkgutil.walk_packages(ollie_fuse.__path__, "ollie_fuse."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for cls in all_of(OllieError):
        assert cls.__doc__
        if cls.__module__ == "ollie_fuse.errors":
            assert cls in TABLE
        elif cls.__module__.startswith("ollie_fuse."):
            assert cls.errno in TABLE.values()


@pytest.mark.parametrize(
    ("exc", "number", "sentence", "is_bug"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), errno.ENOENT, "/x: No such file", False),
        (OSError(errno.ENOSPC, "No space left on device"), errno.ENOSPC, "No space left on device", False),
        (OSError(errno.EIO, "Input/output error"), errno.EIO, "Input/output error", True),
        (OSError("no number"), errno.EIO, "internal error (OSError); the daemon's log has the details", True),
        (ValueError("s3cret"), errno.EIO, "internal error (ValueError); the daemon's log has the details", True),
        (KeyError("s3cret"), errno.EIO, "internal error (KeyError); the daemon's log has the details", True),
        (ExceptionGroup("g", [errors.Busy("x")]), errno.EIO, "internal error (ExceptionGroup);", True),
        (trio.BrokenResourceError(), errno.EIO, "internal error (BrokenResourceError);", True),
    ],
)
def test_those_of_others(exc: Exception, number: int, sentence: str, is_bug: bool) -> None:
    """The system's errors keep their errno; what is unexpected is EIO, is for the log, and tells nobody its details."""
    assert errno_of(exc) == number
    assert sentence_of(exc).startswith(sentence)
    assert "s3cret" not in sentence_of(exc)
    assert is_unexpected(exc) is is_bug


@pytest.mark.parametrize(
    "exc",
    [socket.gaierror(socket.EAI_NONAME, "not known"), OSError(-2, "x"), OSError(99999, "x"), ssl.SSLError(1, "tls")],
)
def test_numbers_that_are_no_errno(exc: OSError) -> None:
    """An OSError whose number means something else than errno does is EIO."""
    assert errno_of(exc) == errno.EIO
