"""What a file or a directory is, whoever serves it: no FUSE, no 9P, no engine."""

from ollie_fuse.nodes.conversation import (
    CommandTalk,
    ConversationFile,
    Talk,
    command_file,
    complete_lines,
    complete_spec,
)
from ollie_fuse.nodes.dirs import FixedDirectory, LiveDirectory
from ollie_fuse.nodes.mirror import MirrorDirectory
from ollie_fuse.nodes.node import Attributes, Caller, Directory, File, Handle, Node, Opening, Source, Wait
from ollie_fuse.nodes.stream import UNFINISHED_BYTES, FixedSource, GrowingFile, StreamFile, read_source
from ollie_fuse.nodes.text import TextFile, ValueFile

__all__ = [
    "UNFINISHED_BYTES",
    "Attributes",
    "Caller",
    "CommandTalk",
    "ConversationFile",
    "Directory",
    "File",
    "FixedDirectory",
    "FixedSource",
    "GrowingFile",
    "Handle",
    "LiveDirectory",
    "MirrorDirectory",
    "Node",
    "Opening",
    "Source",
    "StreamFile",
    "Talk",
    "TextFile",
    "ValueFile",
    "Wait",
    "command_file",
    "complete_lines",
    "complete_spec",
    "read_source",
]
