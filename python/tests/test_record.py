"""The classes of a record follow its schema: UPDATE_DOCS=1 writes them anew."""

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "docs/reference/record.schema.json"
MODULE = ROOT / "python/tidewater_ssd/record.py"

HEAD = '''"""The record of a run, field by field, from docs/reference/record.schema.json (tests/test_record.py)."""

from __future__ import annotations

from tidewater_ssd._view import Map, View
'''
PLAIN = {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}


def name_of(reference: str) -> str:
    return "".join(word.capitalize() for word in reference.rsplit("/", 1)[-1].split("_"))


def type_of(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return name_of(field["$ref"])
    if "enum" in field:
        return "str"
    if field["type"] == "object":
        return f"Map[{type_of(field['additionalProperties'])}]"
    if field["type"] != "array":
        return PLAIN[field["type"]]
    items = field["items"]
    if "prefixItems" in items:
        return f"list[list[{type_of(items['prefixItems'][0])}]]"
    return f"tuple[{name_of(items['$ref'])}, ...]" if "$ref" in items else f"list[{type_of(items)}]"


def part_of(field: dict[str, Any]) -> str | None:
    inner = field.get("additionalProperties") or field.get("items") or {}
    return name_of(inner["$ref"]) if isinstance(inner, dict) and "$ref" in inner else None


def class_of(name: str, schema: dict[str, Any]) -> str:
    fields: dict[str, dict[str, Any]] = schema["properties"]
    required = set(schema["required"])
    doc = textwrap.fill(schema["description"], 112, subsequent_indent="    ")
    lines = [f"class {name}(View):", f'    """{doc}"""', "", "    __slots__ = ()"]
    for field, about in fields.items():
        lines += textwrap.wrap(about["description"], 116, initial_indent="    #: ", subsequent_indent="    #: ")
        lines.append(f"    {field}: {type_of(about)}{'' if field in required else ' | None'}")
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("_part", {field: name_of(about["$ref"]) for field, about in fields.items() if "$ref" in about}),
        ("_parts", {field: part_of(about) for field, about in fields.items() if part_of(about)}),
    ]
    for kind, found in kinds:
        if found:
            inner = ", ".join(f'"{field}": {value}' for field, value in found.items())
            text = f"{kind} = {{{inner}}}"
            if len(text) > 114:
                inner = inner.replace(": ", ":\0")
                wrapped = textwrap.fill(inner + ",", 112, initial_indent=" " * 8, subsequent_indent=" " * 8)
                wrapped = wrapped.replace("\0", " ")
                text = f"{kind} = {{\n{wrapped}\n    }}"
            lines.append(f"    {text}")
    return "\n".join(lines)


def module() -> str:
    schema = json.loads(SCHEMA.read_text())
    # A result has a table in its place.
    del schema["properties"]["time_series"]
    done: dict[str, str] = {}

    def add(name: str, part: dict[str, Any]) -> None:
        for reference in (text for text in json.dumps(part).split('"') if text.startswith("#/$defs/")):
            inner = reference.rsplit("/", 1)[-1]
            if name_of(inner) not in done:
                add(name_of(inner), schema["$defs"][inner])
        done[name] = class_of(name, part)

    add("Record", schema)
    return HEAD + "".join(f"\n\n{text}\n" for text in done.values())


@pytest.mark.skipif(not SCHEMA.exists(), reason="the schema is not here")
def test_the_classes_of_a_record_follow_its_schema() -> None:
    made = module()
    if os.environ.get("UPDATE_DOCS"):
        MODULE.write_text(made)
    assert MODULE.read_text() == made, "UPDATE_DOCS=1 pytest tests/test_record.py writes it anew"
