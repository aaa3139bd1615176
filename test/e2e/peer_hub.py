#!/usr/bin/env python3
"""Reads or fills a Hugging Face cache (HF_HOME) with Python's own libraries. Exit 0 when all is as expected. Used by
peer_hub_test.

usage: test/e2e/peer_hub.py read ID REVISION COMMIT VECTORS.jsonl   what stft left; VECTORS: of "small flowers"
       test/e2e/peer_hub.py load ID REVISION                        downloads as SentenceTransformer does
       test/e2e/peer_hub.py snapshot ID REVISION                    downloads as snapshot_download does
"""
import json
import os
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def read(model_id, revision, commit, vectors):
    import numpy
    from huggingface_hub import _CACHED_NO_EXIST, scan_cache_dir, snapshot_download, try_to_load_from_cache
    from sentence_transformers import SentenceTransformer

    folder = snapshot_download(model_id, revision=revision, local_files_only=True)
    assert os.path.basename(folder) == commit, folder
    for name in ("config.json", "1_Pooling/config.json", "model.safetensors"):
        path = try_to_load_from_cache(model_id, name, revision=revision)
        assert isinstance(path, str) and os.path.isfile(path), (name, path)
    assert try_to_load_from_cache(model_id, "sentence_absent.json", revision=revision) is None
    marker = os.path.join(os.path.dirname(os.path.dirname(folder)), ".no_exist", commit)
    for name in os.listdir(marker) if os.path.isdir(marker) else ():
        assert try_to_load_from_cache(model_id, name, revision=revision) is _CACHED_NO_EXIST, name
    report = scan_cache_dir()
    assert not report.warnings, report.warnings
    (repo,) = report.repos
    assert repo.repo_id == model_id and {r.commit_hash for r in repo.revisions} == {commit}
    assert {ref for r in repo.revisions for ref in r.refs} == {revision}
    expected = SentenceTransformer(model_id, revision=revision).encode("small flowers")
    with open(vectors, encoding="utf-8") as lines:
        found = numpy.array(json.loads(next(lines))["embedding"], dtype=numpy.float32)
    assert numpy.abs(found - expected).max() < 1e-6, numpy.abs(found - expected).max()


def load(model_id, revision):
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(model_id, revision=revision)


def snapshot(model_id, revision):
    from huggingface_hub import snapshot_download

    snapshot_download(model_id, revision=revision)


if __name__ == "__main__":
    {"read": read, "load": load, "snapshot": snapshot}[sys.argv[1]](*sys.argv[2:])
