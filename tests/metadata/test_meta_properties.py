"""meta.properties: written once, compared ever after."""

import random

import pytest

from odradek.config.sources import parse_properties
from odradek.metadata.formatting import new_properties
from odradek.metadata.properties import (
    WrongDirectory,
    check_cluster,
    check_node,
    read_properties,
    write_properties,
)
from odradek.model import id_from_text, id_to_text
from odradek.storage.disk.files import DiskFiles


def load(directory, node_id=1, cluster_id=None, seed=1):
    """Opens the directory as this node, in this cluster or in any; what is not there is written."""
    files, directory = DiskFiles(), str(directory)
    properties = read_properties(files, directory)
    if properties is None:
        properties = new_properties(node_id, random.Random(seed), cluster_id)
        write_properties(files, directory, properties)
    check_node(directory, properties, node_id)
    if cluster_id is not None:
        check_cluster(directory, properties, cluster_id)
    return properties


def test_a_new_directory_starts_a_new_cluster(tmp_path):
    properties = load(tmp_path)
    assert parse_properties((tmp_path / "meta.properties").read_text()) == {
        "cluster.id": properties.cluster_id,
        "directory.id": id_to_text(properties.directory_id),
        "node.id": "1",
        "version": "1",
    }
    assert id_from_text(properties.cluster_id).version == 4
    assert load(tmp_path, seed=2) == properties


def test_a_directory_joins_the_cluster_that_is_named(tmp_path):
    assert load(tmp_path, cluster_id="mine").cluster_id == "mine"
    assert load(tmp_path).cluster_id == "mine"


@pytest.mark.parametrize(
    ("change", "words"),
    [({"node_id": 2}, ["node.id=1", "node.id=2"]), ({"cluster_id": "other"}, ["mine", "other"])],
)
def test_anothers_directory_is_refused(tmp_path, change, words):
    load(tmp_path, cluster_id="mine")
    with pytest.raises(WrongDirectory) as refusal:
        load(tmp_path, **change)
    assert all(word in str(refusal.value) for word in words)


def test_kafkas_own_file_is_read(tmp_path):
    text = "#\n#Sat Jan 01 00:00:00 UTC 2026\nnode.id=1\nversion=1\ndirectory.id=J8aAPcfLQt2bqs1JT_rMgQ\ncluster.id=c\n"
    (tmp_path / "meta.properties").write_text(text)
    assert load(tmp_path).cluster_id == "c"


@pytest.mark.parametrize(
    "text", ["", "version=0\nbroker.id=1", "version=1\nnode.id=x\ncluster.id=c\ndirectory.id=d"]
)
def test_an_unreadable_file_is_refused(tmp_path, text):
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(WrongDirectory):
        load(tmp_path)
