"""Large bytes in a context: the JSON of a run holds their digest, the store holds them once."""

import base64
import binascii
import hashlib
from collections.abc import Callable
from typing import Any, TypeAlias

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from agentflow.errors import NotFound

__all__ = ["INLINE", "Blob", "BlobSource"]

BlobSource: TypeAlias = Callable[[str], bytes | None]
"""The bytes of a digest, None if it has none; may block for as long as a read of the database takes."""

OCTETS = "application/octet-stream"
INLINE = "the bytes are part of the JSON"  # a context of serialisation, where no commit would store them beside it


class Blob:
    """Large bytes, stored once by their digest and loaded when read.

    As a field of a context (also inside lists and models) it costs a line of JSON in each revision that sets it; the
    bytes are stored in the commit that brings them, once, however many runs and revisions refer to them. Blobs are
    equal if bytes and media type are.
    """

    __slots__ = ("_content", "_source", "digest", "media_type", "size")

    digest: str
    """`sha256:` and the hexadecimal digest of the bytes."""
    media_type: str
    size: int
    """In bytes."""

    def __init__(self, content: bytes, /, *, media_type: str = OCTETS) -> None:
        self._content: bytes | None = bytes(content)
        self._source: BlobSource | None = None
        self.digest = "sha256:" + hashlib.sha256(content).hexdigest()
        self.media_type = media_type
        self.size = len(content)

    @classmethod
    def _stored(cls, digest: str, size: int, media_type: str, source: BlobSource | None) -> "Blob":
        blob = cls.__new__(cls)
        blob._content, blob._source = None, source
        blob.digest, blob.size, blob.media_type = digest, size, media_type
        return blob

    def read(self) -> bytes:
        """Load the bytes. Raises `NotFound` where the store at hand does not have them."""
        if self._content is not None:
            return self._content
        content = None if self._source is None else self._source(self.digest)
        if content is None:
            raise NotFound(f"the store at hand has no bytes of {self.digest}; read the blob of a snapshot or a body")
        return content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and (self.digest, self.media_type) == (other.digest, other.media_type)

    def __hash__(self) -> int:
        return hash((self.digest, self.media_type))

    def __repr__(self) -> str:
        return f"Blob({self.size} bytes, {self.media_type}, {self.digest[:19]}...)"

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            _validated, serialization=core_schema.plain_serializer_function_ser_schema(_serialised, info_arg=True)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"title": "Blob", "type": "object", "properties": {"content": {"type": "string", "format": "base64"}}}


def _validated(value: Any, info: core_schema.ValidationInfo[Any]) -> Blob:
    """A blob as it is, as it is stored, or as a caller sends it (`{"content": base64}`)."""
    if isinstance(value, Blob):
        return value
    match value:
        case {"blob": str(digest), "size": int(size), "media_type": str(media_type)}:
            return Blob._stored(digest, size, media_type, info.context)  # pyright: ignore[reportPrivateUsage]
        case {"content": str(content)}:
            try:
                return Blob(base64.b64decode(content, validate=True), media_type=str(value.get("media_type", OCTETS)))
            except binascii.Error as error:
                raise ValueError(f"content is not base64: {error}") from None
        case _:
            raise ValueError('a Blob is {"content": base64, "media_type": ...}')


def _serialised(value: Any, info: core_schema.SerializationInfo[Any]) -> dict[str, Any]:
    if not isinstance(value, Blob):
        raise ValueError(f"{type(value).__name__} is no Blob")
    collected: Any = info.context
    content = value._content  # pyright: ignore[reportPrivateUsage]
    if isinstance(collected, dict) and content is not None:
        collected[value.digest] = content  # for whoever writes it
    if collected is INLINE:
        return {"content": base64.b64encode(value.read()).decode(), "media_type": value.media_type}
    return {"blob": value.digest, "size": value.size, "media_type": value.media_type}
