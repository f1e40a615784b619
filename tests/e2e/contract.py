"""docs/openapi.yaml for tests: its operations, and whether an answer conforms to it."""
import json
import os

import yaml

from harness import ROOT, same

# Headers that any answer may have; others must be declared.
GENERAL = {"date", "connection", "content-length", "content-type", "transfer-encoding", "cache-control",
           "x-content-type-options"}
METHODS = {"get", "post", "put", "patch", "delete", "options"}


def read(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read()


DOCUMENT = yaml.safe_load(read("docs/openapi.yaml"))


def resolve(thing):
    while isinstance(thing, dict) and "$ref" in thing:
        target = DOCUMENT
        for part in thing["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        thing = target
    return thing


def complaints(schema, value, where):
    """The differences between `value` and `schema`, for the part of JSON Schema that the document uses."""
    schema = resolve(schema)
    if value is None:
        return [] if schema.get("nullable") or not schema else [f"{where} is null"]
    found = [c for part in schema.get("allOf", []) for c in complaints(part, value, where)]
    if "anyOf" in schema:
        each = [complaints(part, value, where) for part in schema["anyOf"]]
        found += [] if [] in each else min(each, key=len)
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return found + [f"{where} is {value!r:.60}, not of type {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where} is {value!r}, none of {schema['enum']}")
    if kind in ("number", "integer") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{where} is {value}, out of range")
    if kind == "object":
        found += [f"{where} has no {name}" for name in schema.get("required", []) if name not in value]
        if schema.get("additionalProperties") is False:
            found += [f"{where} has {name}, which is not declared" for name in set(value) - set(schema["properties"])]
        for name, part in schema.get("properties", {}).items():
            if name in value:
                found += complaints(part, value[name], f"{where}.{name}")
    if kind == "array":
        for i, item in enumerate(value):
            found += complaints(schema.get("items", {}), item, f"{where}[{i}]")
    return found


def operations():
    for path, item in DOCUMENT["paths"].items():
        for method in sorted(METHODS & set(item)):
            yield path, method, item[method], item.get("parameters", []) + item[method].get("parameters", [])


def check_headers(operation, declared, answer, where):
    """A refusal may also have the headers of a successful answer, because a job that was waited for exists."""
    told = {name.lower(): resolve(header) for name, header in declared.get("headers", {}).items()}
    beside = {name.lower() for other in operation["responses"].values()
              for name in resolve(other).get("headers", {})} if answer.status >= 400 else set()
    other = set(answer.headers) - GENERAL - set(told) - beside
    assert not other, f"{where} has the headers {other}, which are not declared"
    same(answer.headers.get("x-content-type-options"), "nosniff", f"X-Content-Type-Options of {where}")
    for name, header in told.items():
        if header.get("required"):
            assert name in answer.headers, f"{where} has no {name}: {answer.headers}"
        if name in answer.headers and header["schema"]["type"] == "integer":
            assert answer.headers[name].isdigit(), f"{name} of {where} is {answer.headers[name]!r}"


def check_answer(path, method, operation, answer):
    """An answer must be declared, and conform to its declaration: status, media type, body, headers."""
    where = f"{method.upper()} {path}: {answer.status}"
    assert str(answer.status) in operation["responses"], f"{where} is not declared: {answer.body[:300]!r}"
    declared = resolve(operation["responses"][str(answer.status)])
    check_headers(operation, declared, answer, where)
    media = answer.headers.get("content-type", "").split(";")[0]
    content = declared.get("content", {})
    assert media in content if content else not answer.body, f"{where} is {media!r}, declared are {set(content)}"
    if media.endswith("json"):
        document = json.loads(answer.body)
        found = complaints(content[media].get("schema", {}), document, where)
        assert not found, found
        if media == "application/problem+json":
            same(document["status"], answer.status, f"status in the problem of {where}")


OPERATIONS = {(path, method): operation for path, method, operation, _ in operations()}
