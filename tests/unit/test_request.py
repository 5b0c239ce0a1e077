"""Requests: headers without case, and the tree of values."""

from __future__ import annotations

from batch_handler.request import Headers, Node


def test_headers_are_found_in_any_case() -> None:
    headers = Headers([("Content-Type", "a"), ("X-AMZN-Thing", "b")])
    assert headers.get("content-type") == headers.get("CONTENT-TYPE") == "a"
    assert headers.get("x-amzn-thing") == "b"
    assert headers.get("accept") is None


def test_a_tree_lists_its_nodes_and_its_leaves_in_order() -> None:
    tree = Node(children=(Node(slot=0), Node(children=(Node(slot=1), Node())), Node(slot=2)))
    assert list(tree.leaves()) == [0, 1, 2]
    assert len(list(tree.walk())) == 6
