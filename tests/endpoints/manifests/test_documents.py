"""From manifest text to objects, and rejected input."""

from __future__ import annotations

import pytest

from console.core.yaml_reader import MAX_CHARACTERS
from endpoints.manifests import documents
from endpoints.spec.endpoint_spec import SpecErrors


def test_multiple_documents_lists_and_json_are_parsed() -> None:
    text = "a: 1\n---\n---\nkind: List\nitems:\n- b: 2\n- c: 3\n---\n" + '{"d": [1, "x", null]}'
    assert documents.read_documents(text) == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": [1, "x", None]}]


def test_date_stays_a_string() -> None:
    assert documents.read_documents("metadata:\n  day: 2026-11-21") == [
        {"metadata": {"day": "2026-11-21"}}
    ]


def test_merge_keys_are_no_second_key() -> None:
    text = "base: &base {a: 1}\none:\n  <<: *base\n  a: 2\n"
    assert documents.read_documents(text)[0]["one"] == {"a": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "given twice (line 3"),
        ("a: [1, 2", "cannot be read"),
        ("- 1\n- 2\n", "not an object"),
        ("", "no object"),
        ("a: .nan", "not a JSON number"),
        ("1: x", "key is not a string"),
        ("a: !!python/object/apply:os.system ['true']", "cannot be read"),
        ("a: !!binary aGk=", "constructor for the tag"),
        ("? [a, b]\n: 1\n", "cannot be read"),
        ("a: &x [*x]", "a value that contains it"),
        ("a: '\\ud800'".replace("'", '"'), "unpaired surrogate"),
        ("[" * 3000, "cannot be read"),
    ],
)
def test_ignored_content_is_reported(text: str, message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        documents.read_documents(text)
    assert message in caught.value.errors[0].message + caught.value.errors[0].remedy


def test_small_input_cannot_expand() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(SpecErrors, match="values, aliases expanded"):
        documents.read_documents("\n".join(lines))


def test_oversized_input_is_not_parsed() -> None:
    with pytest.raises(SpecErrors, match="characters"):
        documents.read_documents("a: " + "x" * MAX_CHARACTERS)


def test_dumped_documents_parse_back() -> None:
    shared = {"x": ["yes", "1", "2026-11-21", "", "ä\n", 1, 1.5, True, None]}
    data = {"b": shared, "a": shared}
    text = documents.to_yaml(data, {"c": 1})
    assert "&" not in text and text.index("b:") < text.index("a:")
    assert documents.read_documents(text) == [data, {"c": 1}]
