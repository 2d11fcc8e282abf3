#!/usr/bin/env bash
# The one-kilobyte job of the benchmark, with a single call of jq.
set -euo pipefail

jq -c '.[].objects[].object | select(.metadata.labels.owner == null) | {
  operation: "MergePatch", apiVersion, kind, namespace: .metadata.namespace, name: .metadata.name,
  mergePatch: {metadata: {labels: {owner: "unknown"}}}
}' "$BINDING_CONTEXT_PATH" > "$KUBERNETES_PATCH_PATH"
