"""The one-kilobyte job of the benchmark, with the standard library alone."""

import json
import os

with open(os.environ["BINDING_CONTEXT_PATH"]) as file:
    contexts = json.load(file)

with open(os.environ["KUBERNETES_PATCH_PATH"], "w") as patches:
    for context in contexts:
        for selected in context["objects"]:
            pod = selected["object"]
            if pod["metadata"].get("labels", {}).get("owner") is None:
                patch = {
                    "operation": "MergePatch",
                    "apiVersion": pod["apiVersion"],
                    "kind": pod["kind"],
                    "namespace": pod["metadata"]["namespace"],
                    "name": pod["metadata"]["name"],
                    "mergePatch": {"metadata": {"labels": {"owner": "unknown"}}},
                }
                patches.write(json.dumps(patch) + "\n")
