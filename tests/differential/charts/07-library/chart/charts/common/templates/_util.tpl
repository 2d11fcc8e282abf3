{{- define "common.labels" -}}
app: {{ .Chart.Name }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- define "common.merge" -}}
{{- $top := first . -}}
{{- $over := fromYaml (include (index . 1) $top) | default dict -}}
{{- $base := fromYaml (include (index . 2) $top) | default dict -}}
{{- toYaml (merge $over $base) -}}
{{- end -}}
