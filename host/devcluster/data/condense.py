#!/usr/bin/env python3
"""Condenses the API description of Kubernetes to what this crate needs.

Input: the `api` folder of the Go module k8s.io/kubernetes (Apache-2.0), version 1.37.2:
`discovery/aggregated_v2.json` and `openapi-spec/v3/*.json`.
For the binary form of requests also the struct tags of the Go modules k8s.io/api and k8s.io/apimachinery (0.37.2).
Output (standard output): one JSON document {"resources": [...], "types": {...}, "wire": {...}, "omit": {...}}, without
descriptions. `omit` has, per type, the fields that are left out when they are zero (no pointers, and `omitempty`).
`wire` has, per type, the name of each field number; `*` behind a name marks a pointer (its zero value is kept) and `=`
before it an inlined type.

    condense.py <k8s.io/kubernetes>/api <k8s.io/api> <k8s.io/apimachinery> > kubernetes-1.37.json
"""
import glob
import json
import os
import re
import sys

SERVED = {
    ("", "v1"): "bindings configmaps endpoints events limitranges namespaces nodes persistentvolumeclaims "
    "persistentvolumes pods podtemplates replicationcontrollers resourcequotas secrets serviceaccounts services",
    ("apps", "v1"): "controllerrevisions daemonsets deployments replicasets statefulsets",
    ("batch", "v1"): "cronjobs jobs",
    ("networking.k8s.io", "v1"): "ingresses ingressclasses networkpolicies",
    ("policy", "v1"): "poddisruptionbudgets",
    ("autoscaling", "v2"): "horizontalpodautoscalers",
    ("autoscaling", "v1"): "horizontalpodautoscalers",
    ("rbac.authorization.k8s.io", "v1"): "clusterrolebindings clusterroles rolebindings roles",
    ("storage.k8s.io", "v1"): "storageclasses csidrivers",
    ("coordination.k8s.io", "v1"): "leases",
    ("discovery.k8s.io", "v1"): "endpointslices",
    ("scheduling.k8s.io", "v1"): "priorityclasses",
    ("node.k8s.io", "v1"): "runtimeclasses",
    ("events.k8s.io", "v1"): "events",
    ("admissionregistration.k8s.io", "v1"): "mutatingwebhookconfigurations validatingwebhookconfigurations "
    "validatingadmissionpolicies validatingadmissionpolicybindings",
    ("apiregistration.k8s.io", "v1"): "apiservices",
    ("apiextensions.k8s.io", "v1"): "customresourcedefinitions",
    ("authorization.k8s.io", "v1"): "localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews "
    "subjectaccessreviews",
    ("authentication.k8s.io", "v1"): "selfsubjectreviews tokenreviews",
}
KEPT = {
    "type", "format", "enum", "required", "$ref", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type", "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy",
    "x-kubernetes-group-version-kind", "x-kubernetes-preserve-unknown-fields", "oneOf",
}


def condense(node, key_default=False):
    out = {}
    for key, value in node.items():
        if key in KEPT:
            out[key] = value
        elif key == "properties":
            out[key] = {name: condense(child, True) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = condense(value)
        elif key == "additionalProperties":
            out[key] = value
        elif key == "allOf" and len(value) == 1:
            out.update(condense(value[0]))
        elif key == "default" and key_default and value not in ("", 0, False, None) and value != {}:
            out[key] = value
    if "x-kubernetes-group-version-kind" in out and len(out["x-kubernetes-group-version-kind"]) > 1:
        del out["x-kubernetes-group-version-kind"]
    return out


def references(node, found):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            found.add(node["$ref"].rsplit("/", 1)[1])
        for value in node.values():
            references(value, found)
    elif isinstance(node, list):
        for value in node:
            references(value, found)


FIELD = re.compile(r"^\t(?:(\w+)\s+)?(\S+)\s+`json:\"([^\"]*)\".*protobuf:\"\w+,(\d+),")


def wire(api, machinery):
    """Field numbers by type, from the struct tags."""
    out, omitted = {}, {}
    packages = {"core.v1": "io.k8s.api.core.v1", "v1": "io.k8s.api.core.v1", "corev1": "io.k8s.api.core.v1",
                "metav1": "io.k8s.apimachinery.pkg.apis.meta.v1"}
    sources = [(path, "io.k8s.api." + ".".join(path.split(os.sep)[-3:-1])) for path in glob.glob(f"{api}/*/*/types.go")]
    sources.append((f"{machinery}/pkg/apis/meta/v1/types.go", packages["metav1"]))
    for path, package in sources:
        current = None
        with open(path) as file:
            for line in file:
                start = re.match(r"^type (\w+) struct {", line)
                if start:
                    current = out.setdefault(f"{package}.{start.group(1)}", {})
                    empty = omitted.setdefault(f"{package}.{start.group(1)}", [])
                elif line.startswith("}"):
                    current = None
                elif current is not None and (field := FIELD.match(line)):
                    kind, name, number = field.group(2), field.group(3).split(",")[0], field.group(4)
                    if name:
                        current[number] = name + ("*" if kind.startswith("*") else "")
                        if ",omitempty" in field.group(3) and not kind.startswith(("*", "[", "map[")):
                            empty.append(name)
                    else:  # an embedded struct, written `json:""` or `json:",inline"`
                        alias, _, plain = kind.lstrip("*").rpartition(".")
                        current[number] = "=" + (packages[alias] if alias else package) + "." + plain
    return out, omitted


def main(folder, api, machinery):
    with open(os.path.join(folder, "discovery", "aggregated_v2.json")) as file:
        groups = json.load(file)["items"]
    # The core group is not part of the aggregated file of the module: its plain list has the same facts.
    with open(os.path.join(folder, "discovery", "api__v1.json")) as file:
        core = json.load(file)["resources"]
    schemas = {}
    for name in sorted(os.listdir(os.path.join(folder, "openapi-spec", "v3"))):
        if name.startswith(("api__", "apis__")):
            with open(os.path.join(folder, "openapi-spec", "v3", name)) as file:
                schemas.update(json.load(file).get("components", {}).get("schemas", {}))
    by_kind = {}
    for name, schema in schemas.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", []):
            by_kind.setdefault((gvk["group"], gvk["version"], gvk["kind"]), name)

    resources = []

    def add(group, version, plural, singular, kind, namespaced, verbs, short, categories, subresources):
        if plural not in SERVED.get((group, version), "").split():
            return
        resources.append({
            "group": group, "version": version, "plural": plural, "singular": singular, "kind": kind,
            "namespaced": namespaced, "verbs": verbs, "short": short, "categories": categories,
            "subresources": subresources, "type": by_kind[(group, version, kind)],
        })

    for resource in core:
        if "/" in resource["name"]:
            continue
        plural = resource["name"]
        subresources = [
            {"name": other["name"].split("/", 1)[1], "kind": other["kind"], "group": other.get("group", ""),
             "version": other.get("version", "v1"), "verbs": other["verbs"]}
            for other in core if other["name"].startswith(plural + "/")]
        add("", "v1", plural, resource["singularName"], resource["kind"], resource["namespaced"],
            resource["verbs"], resource.get("shortNames", []), resource.get("categories", []), subresources)
    for item in groups:
        group = item["metadata"].get("name", "")
        for version in item["versions"]:
            for resource in version["resources"]:
                subresources = [
                    {"name": sub["subresource"], "kind": sub["responseKind"]["kind"],
                     "group": sub["responseKind"]["group"] or group,
                     "version": sub["responseKind"]["version"] or version["version"], "verbs": sub["verbs"]}
                    for sub in resource.get("subresources", [])]
                add(group, version["version"], resource["resource"], resource["singularResource"],
                    resource["responseKind"]["kind"], resource["scope"] == "Namespaced", resource["verbs"],
                    resource.get("shortNames", []), resource.get("categories", []), subresources)

    wanted, queue = {}, [resource["type"] for resource in resources]
    queue.append(by_kind[("autoscaling", "v1", "Scale")])
    queue.append(by_kind[("policy", "v1", "Eviction")])
    queue.append(by_kind[("authentication.k8s.io", "v1", "TokenRequest")])
    queue.append("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
    while queue:
        name = queue.pop()
        if name in wanted:
            continue
        wanted[name] = condense(schemas[name])
        found = set()
        references(wanted[name], found)
        queue.extend(found)
    numbers, omitted = wire(api, machinery)
    kept, queue = {}, list(wanted)
    while queue:
        name = queue.pop()
        if name in numbers and name not in kept:
            kept[name] = numbers[name]
            queue.extend(field[1:] for field in numbers[name].values() if field.startswith("="))
    omit = {name: sorted(omitted[name]) for name in wanted if omitted.get(name)}
    document = {"resources": resources, "types": wanted, "wire": kept, "omit": omit}
    json.dump(document, sys.stdout, separators=(",", ":"), sort_keys=True)
    sys.stdout.write("\n")


main(*sys.argv[1:4])
