"""The encoder process returns the vectors of the model, errors in one line, and its client imports no torch."""

import json
import subprocess
import sys
import threading
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from auditor.workers.encoder_client import EncoderClient, SearchError, serve_encoder


def test_texts_and_pictures_are_encoded_as_the_audit_does(random_model: str, tmp_path: Path) -> None:
    from model.backbone import load_backbone
    from model.pixels import decode_image, fit_image

    backbone = load_backbone(random_model)
    client = EncoderClient(random_model, backbone.fingerprint)
    try:
        texts = ["a dog", "two cats on a red sofa"]
        assert np.allclose(client.encode_texts(texts), backbone.encode_texts(texts).numpy(), atol=1e-5)
        Image.new("RGB", (50, 40), "red").save(tmp_path / "red.png")
        pixels = fit_image(backbone.pixels, decode_image((tmp_path / "red.png").read_bytes()))
        assert np.allclose(
            client.encode_image(tmp_path / "red.png"), backbone.encode_images(np.stack([pixels])).numpy(), atol=1e-5
        )
        with pytest.raises(SearchError):
            client.encode_image(tmp_path / "nothing.png")
        assert client.encode_texts(["still there"]).shape == (1, backbone.dim)
    finally:
        client.close()


def test_another_model_is_refused(random_model: str) -> None:
    """The function of the child, in a thread: the first question gets the reason as its answer, then it ends."""
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve_encoder, args=(theirs, random_model, "0" * 32))
    thread.start()
    ours.send_bytes(b'{"texts": ["a dog"]}')
    assert "not the one that made the audit" in json.loads(ours.recv_bytes())["error"]
    thread.join(60)
    assert not thread.is_alive()


def test_asking_imports_no_torch() -> None:
    code = (
        "import auditor.query.search, sys; sys.exit(bool({'torch', 'model'} & {m.split('.')[0] for m in sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
