"""A real S3 server for tests: moto on a free port of 127.0.0.1, configured by environment variables as for users.

Import the fixtures in a test module: `from tests.support.s3 import bucket, s3_endpoint  # noqa: F401`. Each test
gets a new `bucket`; child processes (Ray workers, the command line) inherit its endpoint and credentials.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.moto_server.threaded_moto_server import ThreadedMotoServer


@dataclass(frozen=True)
class Bucket:
    """An empty bucket, and the environment variables that give access to it."""

    name: str
    endpoint: str
    client: Any
    environment: dict[str, str]

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, data: bytes) -> str:
        """Store an object and return its URL."""
        self.client.put_object(Bucket=self.name, Key=key, Body=data)
        return f"{self.url}/{key}"

    def upload(self, folder: Path, prefix: str = "") -> str:
        """Store all files of a folder below a prefix, and return the URL of the prefix."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"{self.url}/{prefix}".rstrip("/")

    def get(self, key: str) -> bytes:
        data: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return data

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)


@lru_cache
def connect(endpoint: str) -> Any:
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a running server, one per test session."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    yield endpoint
    connect(endpoint).close()
    server.stop()


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A new bucket, with the environment set so that s3fs and boto3 find it."""
    environment = {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    name = f"corpus-{uuid.uuid4().hex[:12]}"
    connect(s3_endpoint).create_bucket(Bucket=name)
    yield Bucket(name, s3_endpoint, connect(s3_endpoint), environment)
    _forget_connections()


def _forget_connections() -> None:
    """Drop the cached clients of s3fs, which belong to this test."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
