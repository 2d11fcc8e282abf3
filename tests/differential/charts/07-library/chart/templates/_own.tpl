{{- define "own.base" }}
kind: Service
metadata:
  name: base
  labels: {{ include "common.labels" . | nindent 4 }}
spec: {ports: [{port: 80}], type: ClusterIP}
{{ end }}
{{- define "own.over" }}
metadata: {name: over}
spec: {type: NodePort}
{{ end }}
