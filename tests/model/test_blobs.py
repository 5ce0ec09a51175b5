"""Blobs: a digest in the JSON, the bytes stored once, read when they are wanted."""

import base64
import hashlib
import json

import pytest

from agentflow import Blob, Context
from agentflow.errors import InvalidContext, InvalidInput, NotFound
from agentflow.merge import Append
from agentflow.model.context import plan_of

BYTES = bytes(range(256)) * 100
DIGEST = "sha256:" + hashlib.sha256(BYTES).hexdigest()


class Case(Context):
    n: int = 0
    scan: Blob | None = None
    pages: list[Blob] = []
    log: Append[Blob] = Append()


PLAN = plan_of(Case)


def test_the_difference_holds_the_digest_and_the_bytes_come_beside_it() -> None:
    _, difference = PLAN.start(Case(scan=Blob(BYTES, media_type="image/png")))
    assert f'"scan":{{"blob":"{DIGEST}","size":25600,"media_type":"image/png"}}' in difference.text()
    assert difference.blobs == ((DIGEST, BYTES),)


def test_bytes_that_occur_several_times_come_once() -> None:
    blob = Blob(BYTES)
    _, difference = PLAN.start(Case(scan=blob, pages=[blob, Blob(BYTES)], log=Append([blob])))
    assert difference.blobs == ((DIGEST, BYTES),)


def test_a_reloaded_blob_is_read_from_where_it_is_stored() -> None:
    _, difference = PLAN.start(Case(scan=Blob(BYTES), pages=[Blob(b"1"), Blob(b"2")], log=Append([Blob(b"3")])))
    asked: list[str] = []

    def source(digest: str) -> bytes | None:
        asked.append(digest)
        return dict(difference.blobs).get(digest)

    case = PLAN.copy(PLAN.load([difference.text()], source))
    assert case.scan is not None
    assert asked == []
    assert (case.scan.read(), [page.read() for page in case.pages], case.log[0].read()) == (BYTES, [b"1", b"2"], b"3")
    assert (case.scan.size, case.scan == Blob(BYTES), len({case.scan, Blob(BYTES)})) == (25600, True, 1)


def test_a_blob_that_nobody_touches_is_not_written_again() -> None:
    _, first = PLAN.start(Case(scan=Blob(BYTES), pages=[Blob(b"1")]))
    kept = PLAN.load([first.text()], dict(first.blobs).get)
    body = PLAN.copy(kept)
    body.n = 1
    _, difference = PLAN.keep(kept, body)
    assert (difference.text(), difference.blobs) == ('{"set":{"n":1}}', ())


def test_a_new_blob_in_a_list_can_be_read_before_it_is_stored() -> None:
    kept, _ = PLAN.start(Case())
    body = PLAN.copy(kept)
    body.pages.append(Blob(b"new"))
    after, difference = PLAN.keep(kept, body)
    assert difference.blobs == ((Blob(b"new").digest, b"new"),)
    assert after.texts["pages"].startswith(b'[{"blob":"sha256:')


def test_bytes_that_the_store_does_not_have_are_not_found() -> None:
    _, difference = PLAN.start(Case(scan=Blob(BYTES)))
    case = PLAN.copy(PLAN.load([difference.text()]))
    assert case.scan is not None
    with pytest.raises(NotFound, match="sha256:"):
        case.scan.read()


def test_a_caller_sends_bytes_as_base64() -> None:
    sent = {"scan": {"content": base64.b64encode(BYTES).decode(), "media_type": "image/png"}}
    case = PLAN.parse(json.dumps(sent))
    assert case.scan == Blob(BYTES, media_type="image/png")


@pytest.mark.parametrize("sent", ['{"scan": "text"}', '{"scan": {"content": "%%%"}}', '{"scan": {}}'])
def test_what_is_no_blob_is_refused_with_its_field(sent: str) -> None:
    with pytest.raises(InvalidInput, match="scan"):
        PLAN.parse(sent)


def test_another_type_in_a_blob_field_is_refused_with_its_path() -> None:
    case = Case()
    setattr(case, "scan", "text")  # noqa: B010  checkers know that it does not fit
    with pytest.raises(InvalidContext, match=r"context\.scan"):
        PLAN.start(case)


def test_a_blob_says_how_large_it_is_and_not_what_it_holds() -> None:
    assert (
        repr(Blob(b"secret" * 9)) == f"Blob(54 bytes, application/octet-stream, {Blob(b'secret' * 9).digest[:19]}...)"
    )
