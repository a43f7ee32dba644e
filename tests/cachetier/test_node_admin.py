"""Node list for the workers of a tier."""

from __future__ import annotations

from pathlib import Path

from cachetier import node_admin
from cachetier.client.node_list import Nodes, read_list
from console.provisioners.base import ReplicaObservation, ReplicaState


def replica(
    index: int, port: int = 0, state: ReplicaState = ReplicaState.READY
) -> ReplicaObservation:
    urls = {"resp": f"http://127.0.0.1:{port}"} if port else {}
    return ReplicaObservation(f"cache-chat-{index}", index, state, "hash", urls)


def test_restarted_node_keeps_its_slot_and_a_surplus_one_loses_it(tmp_path: Path) -> None:
    seen = [
        replica(2, 7002),
        replica(0, 7000, ReplicaState.BACKOFF),
        replica(1),
        replica(3, 7003, ReplicaState.STOPPING),
    ]
    path = tmp_path / "cache" / "chat.nodes"
    assert node_admin.read_listed_names(path) == set()
    found = node_admin.node_list_lines(seen, "resp", wanted=3, listed={"cache-chat-0"})
    assert node_admin.write_node_list(path, found)
    assert [(node.label, node.port) for node in read_list(str(path))] == [
        ("cache-chat-0", 7000),
        ("cache-chat-2", 7002),
    ]
    assert node_admin.read_listed_names(path) == {"cache-chat-0", "cache-chat-2"}
    assert not node_admin.write_node_list(path, found), "nothing to change"
    assert list(path.parent.iterdir()) == [path]


def test_new_node_takes_keys_once_it_is_ready() -> None:
    seen = [replica(0, 7000), replica(1, 7001, ReplicaState.STARTING)]
    (line,) = node_admin.node_list_lines(seen, "resp", wanted=2)
    assert line.endswith("name=cache-chat-0")


def test_worker_address_list_is_accepted_by_the_client(tmp_path: Path) -> None:
    for copies in (1, 2):
        nodes = Nodes.parse(node_admin.node_list_url(tmp_path / "a.nodes", copies))
        assert (nodes.kind, nodes.path, nodes.replicas) == ("file", f"{tmp_path}/a.nodes", copies)
