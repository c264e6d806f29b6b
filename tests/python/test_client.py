"""The official Python client, run against a Thalweg server."""

import os
import threading
import unittest
import uuid

from durable_streams import DurableStream, SeqConflictError, StreamExistsError, StreamNotFoundError, stream

BASE = os.environ["THALWEG_TEST_URL"]
MESSAGES = [{"n": n} for n in range(5)]


def new_url() -> str:
    return f"{BASE}/v1/stream/python/{uuid.uuid4()}"


class Client(unittest.TestCase):
    def test_bytes_are_read_as_they_were_appended(self):
        url = new_url()
        with DurableStream.create(url, content_type="application/octet-stream") as handle:
            first = handle.append(b"\x00\xff")
            handle.append(b"second")
        with stream(url, live=False) as answer:
            self.assertEqual(answer.read_bytes(), b"\x00\xffsecond")
        with stream(url, offset=first.next_offset, live=False) as answer:
            self.assertEqual(answer.read_bytes(), b"second")

    def test_messages_come_one_by_one_whoever_batches_them(self):
        url = new_url()
        with DurableStream.create(url, content_type="application/json") as handle:
            writers = [threading.Thread(target=handle.append, args=(message,)) for message in MESSAGES]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
        with stream(url, live=False) as answer:
            self.assertEqual(sorted(answer.read_json(), key=lambda message: message["n"]), MESSAGES)

    def test_live_readers_get_what_comes_later(self):
        for live in ("long-poll", "sse"):
            with self.subTest(live=live):
                url = new_url()
                handle = DurableStream.create(url, content_type="application/json")
                handle.append(MESSAGES[0])
                received = []

                def read():
                    # The protocol wants an offset of live readers, and this client sends none by itself.
                    with stream(url, offset="-1", live=live) as answer:
                        for message in answer.iter_json():
                            received.append(message)
                            if len(received) == len(MESSAGES):
                                return

                reader = threading.Thread(target=read, daemon=True)
                reader.start()
                for message in MESSAGES[1:]:
                    handle.append(message)
                reader.join(timeout=20)
                handle.close()
                self.assertEqual(received, MESSAGES)

    def test_errors_have_their_types(self):
        url = new_url()
        handle = DurableStream.create(url, content_type="text/plain")
        with self.assertRaises(StreamExistsError):
            DurableStream.create(url, content_type="application/json")
        handle.append("first", seq="b")
        with self.assertRaises(SeqConflictError):
            handle.append("late", seq="a")
        self.assertEqual(handle.head().content_type, "text/plain")
        handle.delete()
        with self.assertRaises(StreamNotFoundError):
            handle.head()
        handle.close()


if __name__ == "__main__":
    unittest.main()
