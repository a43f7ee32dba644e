"""YAML reader: limits, value types, and no other YAML loader in the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from console.commandline import input as commandline_read
from console.commandline.context import CommandError
from console.core import yaml_reader
from console.core.environment import SettingError
from console.core.yaml_reader import YamlError
from console.provisioners.kubernetes.api import kubeconfig
from console.signon.core import configuration
from endpoints.manifests import documents
from endpoints.pages.editor import form_fields, spec_text
from endpoints.spec.endpoint_spec import SpecErrors
from endpoints.spec.fields import BY_PATH
from routing.engine.config import ConfigError, source

ROOT = Path(__file__).parents[3]
PACKAGES = ("console", "endpoints", "routing", "cachetier", "dashboards", "bench", "deploy")
READER = ROOT / "console" / "core" / "yaml_reader.py"
LOADERS = ("load", "compose", "parse", "scan")


def _multiplied(last: int, merge: bool = False) -> str:
    begin = "{k: 1, l: 2}" if merge else "[x, x, x, x, x, x, x, x, x, x]"
    lines = [f"a0: &a0 {begin}"]
    for n in range(1, last):
        ten = ", ".join([f"*a{n - 1}"] * 10)
        lines.append(f"a{n}: &a{n} " + (f"{{<<: [{ten}], z{n}: 1}}" if merge else f"[{ten}]"))
    return "\n".join(lines)


BOMBS = {
    "aliases": (_multiplied(9), "values, aliases expanded"),
    "merges": (_multiplied(9, merge=True), "values, aliases expanded"),
    "an alias to what is around it": ("a: &x [*x]", "a value that contains it"),
    "flow depth": ("[" * 100_000, "nested deeper"),
    "block depth": ("\n".join(" " * depth + "a:" for depth in range(200)), "nested deeper"),
    "depth by aliases": (
        "a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40,
        "nested deeper",
    ),
    "documents": ("--- 1\n" * 2_000, "documents"),
    "characters": ("#" * (yaml_reader.MAX_CHARACTERS + 1), "characters"),
    "base 60": ("a: !!int " + ":".join(["1"] * 100_000), "too many digits"),
    "base 60 float": ("a: !!float " + ":".join(["1"] * 1_000), "too many digits"),
    "binary digits": ("a: 0b" + "1" * 100_000, "too many digits"),
    "digits": ("a: " + "1" * 100_000, "too many digits"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_alias_bomb_is_rejected_before_it_is_built(name: str) -> None:
    text, problem = BOMBS[name]
    with pytest.raises(YamlError, match=problem):
        yaml_reader.read_documents(text)


def test_values_are_counted_in_any_notation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "MAX_VALUES", 50)
    assert yaml_reader.read_document("[" + "x, " * 40 + "]") == ["x"] * 40
    for text in ("[" + "x, " * 60 + "]", "- &a [" + "x, " * 30 + "]\n- *a", "--- [x]\n" * 30):
        with pytest.raises(YamlError, match="values, aliases expanded"):
            yaml_reader.read_documents(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [('a: "x\\0"', "NUL"), ('"\\x00": 1', "NUL"), ('[a, "\\ud800"]', "unpaired surrogate")],
)
def test_text_that_cannot_be_stored_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(YamlError, match=problem):
        yaml_reader.read_documents(text)


def test_values_equal_those_of_json() -> None:
    text = "a: 12:30:45\nb: 2026-11-21\nc: 1.5\nd: 0x1f\ne: yes\nf: '1'\ng:\n"
    expected = {"a": "12:30:45", "b": "2026-11-21", "c": 1.5, "d": 31, "e": True, "f": "1"}
    assert yaml_reader.read_document(text) == expected | {"g": None}
    for tagged in ("!!binary aGk=", "!!set {a}", "!!timestamp 2026-11-21", "!!python/name:os.x"):
        with pytest.raises(YamlError, match="constructor for the tag"):
            yaml_reader.read_document(f"a: {tagged}")
    with pytest.raises(YamlError, match="more than one document"):
        yaml_reader.read_document("a: 1\n---\nb: 1\n")
    assert yaml_reader.read_document("") is None


def _of_form(text: str) -> None:
    """A form passes unreadable text to the spec, which rejects it."""
    if form_fields.parse_value(BY_PATH["pod.env"], text) == text:
        raise YamlError("kept as typed")


def _of_router(text: str, folder: Path) -> None:
    path = folder / "router.yaml"
    path.write_text(text)
    source.load_config(path)


def _of_file(text: str, folder: Path) -> None:
    path = folder / "spec.yaml"
    path.write_text(text)
    commandline_read.read_document(str(path))


@pytest.mark.parametrize("name", ["aliases", "merges", "flow depth"])
def test_every_entry_point_rejects_an_alias_bomb(name: str, tmp_path: Path) -> None:
    text = BOMBS[name][0]
    refused = (
        YamlError,
        SpecErrors,
        kubeconfig.KubeconfigError,
        SettingError,
        ConfigError,
        CommandError,
    )
    for way in (
        documents.read_documents,
        spec_text.parse_text,
        kubeconfig.parse_kubeconfig,
        configuration.parse_providers,
        _of_form,
        lambda bomb: _of_router(bomb, tmp_path),
        lambda bomb: _of_file(bomb, tmp_path),
    ):
        with pytest.raises(refused):
            way(text)


def _loads_yaml(tree: ast.AST) -> bool:
    """Return whether PyYAML is used: `yaml.X`, `from yaml import X`, or another reader."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [node.attr] if node.value.id == "yaml" else []
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "yaml":
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names = ["load" for one in node.names if one.name == "yaml" and one.asname]
        if any(word in name.lower() for name in names for word in LOADERS):
            return True
    return False


def test_yaml_is_loaded_only_by_this_module() -> None:
    assert _loads_yaml(ast.parse(READER.read_text()))
    for example in ("from yaml import safe_load", "import yaml as y", "yaml.CSafeLoader"):
        assert _loads_yaml(ast.parse(example))
    found = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != READER and "yaml" in (text := path.read_text()) and _loads_yaml(ast.parse(text))
    ]
    assert found == []


def test_rendered_values_are_read_again_and_look_as_pyyaml_writes_them() -> None:
    texts = ["x: y", "a\nb\n", "é", "0x1", "yes", "", " a ", "- b", "word " * 60, "'\"", "{{ $v }}"]
    value = {"b": [*texts, None, True, 1.5], "a": {"empty": [{}, []]}}
    assert yaml_reader.read_document(yaml_reader.render({text: text for text in texts})) == {
        text: text for text in texts
    }
    for width, allow_unicode in ((1000, False), (100, True)):
        text = yaml_reader.render(value, width=width, allow_unicode=allow_unicode)
        plain = yaml.safe_dump(value, sort_keys=False, width=width, allow_unicode=allow_unicode)
        assert text == plain
        assert yaml_reader.read_document(text) == value
